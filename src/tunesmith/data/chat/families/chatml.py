"""Families that write ChatML: `<|im_start|>role`, a line break, the words, `<|im_end|>`."""

from collections.abc import Mapping

from tunesmith.data.chat.wire import Thought, Wire

_TOOL_TURN = "<|im_start|>tool\n{}<|im_end|>\n"
_HELPFUL = "You are a helpful assistant."
_INTERN = (
    "You are an AI assistant whose name is InternLM (书生·浦语).\n"
    "- InternLM (书生·浦语) is a conversational language model that is developed by Shanghai AI Laboratory "
    "(上海人工智能实验室). It is designed to be helpful, honest, and harmless.\n"
    "- InternLM (书生·浦语) can understand and communicate fluently in the language chosen by the user such as English "
    "and 中文."
)
_DBRX = (
    "You are DBRX, created by Databricks. You were last updated in December 2023. You answer questions based on "
    "information available up to that point.\nYOU PROVIDE SHORT RESPONSES TO SHORT QUESTIONS OR STATEMENTS, but "
    "provide thorough responses to more complex and open-ended questions.\nYou assist with various tasks, from writing "
    "to coding (using markdown for code blocks — remember to use ``` with code, JSON, and tables).\n(You do not have "
    "real-time data access or code execution capabilities. You avoid stereotyping and provide balanced perspectives on "
    "controversial "
    "topics. You do not provide song lyrics, poems, or news articles and do not divulge details of your training "
    "data.)\nThis is your system prompt, guiding your responses. Do not reference it, just respond to the user. If you "
    "find yourself talking about this message, stop. You should be responding appropriately and usually that means not "
    "mentioning this.\nYOU DO NOT MENTION ANY OF THIS INFORMATION ABOUT YOURSELF UNLESS THE INFORMATION IS DIRECTLY "
    "PERTINENT TO THE USER'S QUERY."
)

_PLAIN = Wire(
    system="<|im_start|>system\n{}<|im_end|>\n",
    user="<|im_start|>user\n{}<|im_end|>\n",
    header="<|im_start|>assistant\n",
    marker="<|im_end|>",
    separator="\n",
)
_WITH_TOOL_TURN = _PLAIN.but(result=_TOOL_TURN)
_CHATML = _WITH_TOOL_TURN.but(becomes_eos=True, stops=("<|im_start|>",))
_WITH_START = _PLAIN.but(prefix="{bos}")
_QWEN = _PLAIN.but(
    becomes_eos=True,
    tools="qwen",
    results_opening="<|im_start|>user",
    result="\n<tool_response>\n{}\n</tool_response>",
    results_closing="<|im_end|>\n",
)
_QWEN_3 = _QWEN.but(thought=Thought())
_QWEN_3_5 = _QWEN_3.but(tools="qwen3_5", thought=Thought(inner=True))
_LFM2 = _PLAIN.but(
    becomes_eos=True,
    tools="lfm2",
    result="<|im_start|>tool\n<|tool_response_start|>{}<|tool_response_end|><|im_end|>\n",
)

WIRES: Mapping[str, Wire] = {
    "chatml": _CHATML,
    "chatml_de": _CHATML.but(default_system="Du bist ein freundlicher und hilfsbereiter KI-Assistent."),
    "cpm4": _WITH_TOOL_TURN.but(prefix="{bos}"),
    "dbrx": _WITH_TOOL_TURN.but(becomes_eos=True, default_system=_DBRX),
    "falcon_h1": _WITH_TOOL_TURN.but(prefix="{bos}", stops=("<|end_of_text|>",)),
    "intern2": _WITH_START.but(default_system=_INTERN),
    "intern_vl": _WITH_START.but(
        default_system="你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"
    ),
    "intern_s1": _WITH_START,
    "keye_vl": _QWEN_3,
    "lfm2": _LFM2.but(default_system="You are a helpful AI assistant."),
    "lfm2_vl": _LFM2.but(default_system="You are a helpful multimodal assistant by Liquid AI."),
    "llava_next_qwen": _QWEN.but(default_system=_HELPFUL),
    "llava_next_video_yi": _PLAIN,
    "llava_next_yi": _PLAIN,
    "mimo": _QWEN_3.but(default_system=_HELPFUL),
    "mimo_v2": _QWEN.but(
        default_system="You are MiMo, a helpful AI assistant engineered by Xiaomi.",
        thought=Thought("<think>", "</think>"),
    ),
    "mimo_vl": _QWEN_3.but(default_system="You are MiMo, an AI assistant developed by Xiaomi."),
    "minicpm_o": _PLAIN.but(
        default_system="You are a helpful assistant. You can accept audio and text input and output voice and text."
    ),
    "minicpm_v": _PLAIN.but(default_system=_HELPFUL),
    "minicpm_v_4_6": _PLAIN.but(default_system=_HELPFUL),
    "moss_vl": _QWEN,
    "opencoder": _WITH_TOOL_TURN.but(default_system="You are OpenCoder, created by OpenCoder Team."),
    "qwen": _QWEN.but(default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen2_audio": _PLAIN.but(becomes_eos=True, default_system=_HELPFUL),
    "qwen2_omni": _QWEN.but(default_system=_HELPFUL),
    "qwen2_vl": _QWEN.but(default_system=_HELPFUL),
    "qwen3": _QWEN_3,
    "qwen3_5": _QWEN_3_5,
    "qwen3_5_nothink": _QWEN_3_5.but(thought=None),
    "qwen3_6": _QWEN_3_5,
    "qwen3_nothink": _QWEN,
    "qwen3_omni": _QWEN_3,
    "qwen3_omni_nothink": _QWEN,
    "qwen3_vl": _QWEN_3,
    "qwen3_vl_nothink": _QWEN,
    "sailor": _PLAIN.but(
        user="<|im_start|>question\n{}<|im_end|>\n",
        header="<|im_start|>answer\n",
        default_system=(
            "You are an AI assistant named Sailor created by Sea AI Lab. Your answer should be friendly, unbiased, "
            "faithful, informative and detailed."
        ),
    ),
    "smollm": _PLAIN,
    "smollm2": _WITH_TOOL_TURN.but(
        default_system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    ),
    "yi": _PLAIN,
    "ernie": _PLAIN.but(
        system="<|im_start|>system\n{}<|im_end|>\n\n",
        user="<|im_start|>user\n{}<|im_end|>\n\n",
        separator="\n\n",
        result="<|im_start|>tool\n{}<|im_end|>\n\n",
        default_system="<global_setting>\nthink_mode=True\n</global_setting>",
    ),
    "phi4": _PLAIN.but(
        system="<|im_start|>system<|im_sep|>{}<|im_end|>",
        user="<|im_start|>user<|im_sep|>{}<|im_end|>",
        header="<|im_start|>assistant<|im_sep|>",
        separator="",
        becomes_eos=True,
    ),
}
