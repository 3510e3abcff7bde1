"""Families that tell turns apart by words or brackets: Alpaca, Vicuna, Llama 2, Mistral, DeepSeek and others."""

from collections.abc import Mapping

from tunesmith.data.chat.wire import Thought, Wire

_CURIOUS = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions."
)
_VICUNA = Wire(system="{} ", default_system=_CURIOUS, user="USER: {} ", header="ASSISTANT:", lead=" ")
_LLAMA2 = Wire(
    system="<<SYS>>\n{}\n<</SYS>>\n\n", system_in_question=True, user="{bos}[INST] {} [/INST]", header="", lead=" "
)
_MISTRAL = Wire(
    prefix="{bos}",
    system="{}\n\n",
    system_in_question=True,
    user="[INST] {}[/INST]",
    header="",
    lead=" ",
    result='[TOOL_RESULTS] {"content": {}}[/TOOL_RESULTS]',
    tools="mistral",
    call_opening="[TOOL_CALLS] ",
)
_MINISTRAL = _MISTRAL.but(
    user="[INST]{}[/INST]",
    lead="",
    result='[TOOL_RESULTS]{"content": {}}[/TOOL_RESULTS]',
    call_opening="[TOOL_CALLS]",
)
_DEEPSEEK3 = Wire(prefix="{bos}", user="<｜User｜>{}", header="<｜Assistant｜>")

WIRES: Mapping[str, Wire] = {
    "alpaca": Wire(
        system="{}\n\n",
        default_system=(
            "Below is an instruction that describes a task. Write a response that appropriately completes the request."
        ),
        user="### Instruction:\n{}\n\n",
        header="### Response:\n",
        separator="\n\n",
    ),
    "default": Wire(system="System: {}{eos}\n", user="Human: {}{eos}\n", header="Assistant:", separator="\n"),
    "empty": Wire(user="{}", header=""),
    "fewshot": Wire(user="{}", header="", separator="\n\n", closed_history=""),
    "vicuna": _VICUNA,
    "llava": _VICUNA,
    "llava_next": _VICUNA,
    "llava_next_video": _VICUNA,
    "video_llava": _VICUNA,
    "granite3_vision": Wire(
        system="<|system|>\n{}\n", default_system=_CURIOUS, user="<|user|>\n{}\n", header="<|assistant|>\n"
    ),
    "xuanyuan": _VICUNA.but(
        system="{}",
        user="Human: {} ",
        header="Assistant:",
        default_system=(
            "以下是用户和人工智能助手之间的对话。用户以Human开头，人工智能助手以Assistant开头，会对人类提出的问题给出有帮助、"
            "高质量、详细和礼貌的回答，并且总是拒绝参与与不道德、不安全、有争议、政治敏感等相关的话题、问题和指示。\n"
        ),
    ),
    "yi_vl": Wire(
        default_system=(
            "This is a chat between an inquisitive human and an AI assistant. Assume the role of the AI assistant. "
            "Read all the images carefully, and respond to the human's questions with informative, helpful, detailed "
            "and polite answers. 这是一个好奇的人类和一个人工智能助手之间的对话。假设你扮演这个AI助手的角色。"
            "仔细阅读所有的图像，并对人类的问题做出信息丰富、有帮助、详细的和礼貌的回答。\n\n"
        ),
        user="### Human: {}\n",
        header="### Assistant:",
        lead=" ",
        separator="\n",
        closed_history="",
        stops=("###",),
    ),
    "llama2": _LLAMA2,
    "llama2_zh": _LLAMA2.but(default_system="You are a helpful assistant. 你是一个乐于助人的助手。"),
    "breeze": Wire(prefix="{bos}", user="[INST] {} [/INST] ", header="", closed_history=""),
    "mistral": _MISTRAL,
    "llava_next_mistral": _MISTRAL,
    "llava_next_video_mistral": _MISTRAL,
    "ministral": _MINISTRAL,
    "ministral3": _MINISTRAL,
    "pixtral": _MINISTRAL,
    "mistral_small": _MINISTRAL.but(system="[SYSTEM_PROMPT]{}[/SYSTEM_PROMPT]", system_in_question=False),
    "deepseek": Wire(prefix="{bos}", system="{}\n\n", user="User: {}\n\n", header="Assistant:", lead=" "),
    "deepseek3": _DEEPSEEK3,
    "deepseekr1": _DEEPSEEK3.but(thought=Thought()),
    "deepseekcoder": Wire(
        prefix="{bos}",
        default_system=(
            "You are an AI programming assistant, utilizing the DeepSeek Coder model, developed by DeepSeek Company, "
            "and you only answer questions related to computer science. For politically sensitive questions, "
            "security and privacy issues, and other non-computer science questions, you will refuse to answer.\n"
        ),
        user="### Instruction:\n{}\n",
        header="### Response:",
        lead="\n",
        marker="\n<|EOT|>",
        separator="\n",
    ),
    "hy3": Wire(
        prefix="{bos}",
        user="<｜hy_User｜>{}",
        header="<｜hy_Assistant｜>",
        marker="<｜hy_eos｜>",
        thought=Thought("<think>", "</think>"),
        becomes_eos=True,
    ),
    "hunyuan": Wire(
        prefix="<|startoftext|>", system="{}<|extra_4|>", user="{}<|extra_0|>", header="", marker="<|eos|>"
    ),
    "hunyuan_small": Wire(
        prefix="<｜hy_begin▁of▁sentence｜>",
        system="{}<｜hy_place▁holder▁no▁3｜>",
        user="<｜hy_User｜>{}<｜hy_place▁holder▁no▁8｜>",
        header="",
        marker="<｜hy_place▁holder▁no▁2｜>",
    ),
    "hy_dense_1_8b": Wire(
        prefix="{bos}",
        system="{}<｜hy_place▁holder▁no▁3｜>",
        user="<｜hy_User｜>{}",
        header="<｜hy_Assistant｜>",
        closed_history="",
        stops=("<｜hy_place▁holder▁no▁2｜>",),
    ),
    "hy_dense_7b": Wire(
        prefix="{bos}", system="{}<|extra_4|>", user="{}<|extra_0|>", header="", closed_history="", stops=("<|eos|>",)
    ),
    "ernie_nothink": Wire(
        prefix="<|begin_of_sentence|>",
        system="{}\n",
        user="User: {}\n",
        header="Assistant: ",
        marker="<|end_of_sentence|>",
    ),
    "ernie_vl": Wire(
        system="{}\n",
        user="User: {}",
        header="\nAssistant: ",
        marker="<|end_of_sentence|>",
        thought=Thought(),
        becomes_eos=True,
    ),
    "falcon": Wire(system="{}\n", user="User: {}\n", header="Falcon:", lead=" ", separator="\n", closed_history=""),
    "index": Wire(system="<unk>{}", user="reserved_0{}reserved_1", header="", closed_history=""),
    "openchat": Wire(prefix="{bos}", user="GPT4 Correct User: {}{eos}", header="GPT4 Correct Assistant:", lead=" "),
    "paligemma": Wire(prefix="{bos}", system_in_question=True, user="{}\n", header=""),
    "solar": Wire(system="### System:\n{}\n\n", user="### User:\n{}\n\n", header="### Assistant:\n", closed_history=""),
    "telechat2": Wire(
        system="<_system>{}",
        default_system=(
            "你是中国电信星辰语义大模型，英文名是TeleChat，你是由中电信人工智能科技有限公司和中国电信人工智能研究院（TeleAI）"
            "研发的人工智能助手。"
        ),
        user="<_user>{}",
        header="<_bot>",
    ),
    "youtu": Wire(
        prefix="{bos}",
        user="<|User|>{}",
        header="<|Assistant|>",
        marker="<|end_of_text|>",
        thought=Thought(),
        becomes_eos=True,
    ),
    "yuan": Wire(user="{}<sep>", header="", marker="<eod>", separator="\n"),
}
