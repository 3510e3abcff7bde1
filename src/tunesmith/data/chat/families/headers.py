"""Families that open every turn with a token or tag of its role: Llama 3, Gemma, GLM, Phi, Granite and others."""

from collections.abc import Mapping

from tunesmith.data.chat.wire import Thought, Wire

_LLAMA3 = Wire(
    prefix="{bos}",
    system="<|start_header_id|>system<|end_header_id|>\n\n{}<|eot_id|>",
    user="<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
    header="<|start_header_id|>assistant<|end_header_id|>\n\n",
    marker="<|eot_id|>",
    result="<|start_header_id|>ipython<|end_header_id|>\n\n{}<|eot_id|>",
    tools="llama3",
    stops=("<|eom_id|>",),
    becomes_eos=True,
)
_GEMMA = Wire(
    prefix="{bos}",
    system="{}\n\n",
    system_in_question=True,
    user="<start_of_turn>user\n{}<end_of_turn>\n",
    header="<start_of_turn>model\n",
    marker="<end_of_turn>",
    separator="\n",
    result="<start_of_turn>tool\n{}<end_of_turn>\n",
    becomes_eos=True,
)
_GEMMA4 = Wire(
    prefix="{bos}",
    system="<|turn>system\n<|think|>{}<turn|>\n",
    default_system="You are a helpful assistant.",
    user="<|turn>user\n{}<turn|>\n",
    header="<|turn>model\n",
    marker="<turn|>",
    separator="\n",
    result="<|turn>tool\n{}<turn|>\n",
    tools="gemma4",
    thought=Thought("<|channel>thought\n", "<channel|>"),
    becomes_eos=True,
)
_GLM4 = Wire(
    prefix="[gMASK]<sop>",
    system="<|system|>\n{}",
    user="<|user|>\n{}",
    header="<|assistant|>",
    lead="\n",
    closed_history="",
    result="<|observation|>\n{}",
    tools="glm4",
    stops=("<|user|>", "<|observation|>"),
)
_GLM4_THINKING = _GLM4.but(thought=Thought())
_GLM4_7 = _GLM4.but(
    tools="glm4_moe",
    thought=Thought("<think>", "</think>", empty="</think>", in_history=True, inner=True),
)
_PHI = Wire(
    system="<|system|>\n{}<|end|>\n",
    user="<|user|>\n{}<|end|>\n",
    header="<|assistant|>\n",
    marker="<|end|>",
    separator="\n",
    becomes_eos=True,
)
_GRANITE = Wire(
    system="<|start_of_role|>system<|end_of_role|>{}<|end_of_text|>\n",
    user="<|start_of_role|>user<|end_of_role|>{}<|end_of_text|>\n",
    header="<|start_of_role|>assistant<|end_of_role|>",
    marker="<|end_of_text|>",
    separator="\n",
)
_KIMI = Wire(
    system="<|im_system|>system<|im_middle|>{}<|im_end|>",
    user="<|im_user|>user<|im_middle|>{}<|im_end|>",
    header="<|im_assistant|>assistant<|im_middle|>",
    marker="<|im_end|>",
)
_SEED = Wire(
    system="{bos}system\n{}{eos}",
    user="{bos}user\n{}{eos}",
    header="{bos}assistant\n",
    result="{bos}tool\n{}{eos}",
)
_BAILING = Wire(
    system="<role>SYSTEM</role>{}",
    user="<role>HUMAN</role>{}",
    header="<role>ASSISTANT</role>",
    closed_history="",
    result="<role>OBSERVATION</role>{}",
    stops=("<|endoftext|>",),
)

WIRES: Mapping[str, Wire] = {
    "llama3": _LLAMA3,
    "mllama": _LLAMA3,
    "llava_next_llama3": _LLAMA3,
    "llama4": _LLAMA3.but(
        system="<|header_start|>system<|header_end|>\n\n{}<|eot|>",
        user="<|header_start|>user<|header_end|>\n\n{}<|eot|>",
        header="<|header_start|>assistant<|header_end|>\n\n",
        marker="<|eot|>",
        result="<|header_start|>ipython<|header_end|>\n\n{}<|eot|>",
        stops=("<|eom|>",),
    ),
    "openchat-3.6": Wire(
        prefix="{bos}",
        user="<|start_header_id|>GPT4 Correct User<|end_header_id|>\n\n{}<|eot_id|>",
        header="<|start_header_id|>GPT4 Correct Assistant<|end_header_id|>\n\n",
        stops=("<|eot_id|>",),
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA.but(becomes_eos=False, stops=("<eos>",)),
    "gemma3": _GEMMA,
    "gemma3n": _GEMMA,
    "paligemma_chat": _GEMMA.but(system="{}"),
    "gemma4": _GEMMA4,
    "gemma4n": _GEMMA4,
    "chatglm3": _GLM4.but(prefix="[gMASK]sop"),
    "glm4": _GLM4,
    "glm_ocr": _GLM4,
    "glm4v": _GLM4_THINKING.but(stops=(*_GLM4.stops, "</answer>")),
    "glmz1": _GLM4_THINKING,
    "glm4_moe": _GLM4_THINKING.but(tools="glm4_moe"),
    "glm4_5v": _GLM4_THINKING.but(tools="glm4_moe", stops=(*_GLM4.stops, "</answer>")),
    "glm4_7": _GLM4_7,
    "aeva": _GLM4_7,
    "phi": _PHI,
    "phi_small": _PHI.but(prefix="<|endoftext|>"),
    "phi4_mini": _PHI.but(system="<|system|>{}<|end|>", user="<|user|>{}<|end|>", header="<|assistant|>", separator=""),
    "starchat": _PHI.but(header="<|assistant|>", becomes_eos=False),
    "granite3": _GRANITE,
    "granite4": _GRANITE.but(
        result="<|start_of_role|>tool<|end_of_role|>{}<|end_of_text|>\n",
        default_system="You are Granite, developed by IBM. You are a helpful AI assistant.",
    ),
    "kimi_vl": _KIMI.but(default_system="You are a helpful assistant", thought=Thought("◁think▷", "◁/think▷")),
    "moonlight": _KIMI.but(becomes_eos=True, default_system="You are a helpful assistant provided by Moonshot-AI."),
    "seed_coder": _SEED.but(
        default_system=(
            "You are an AI programming assistant, utilizing the Seed-Coder model, developed by ByteDance Seed, and you "
            "only answer questions related to computer science. For politically sensitive questions, security and "
            "privacy issues, and other non-computer science questions, you will refuse to answer.\n\n"
        )
    ),
    "seed_oss": _SEED.but(tools="seed_oss", thought=Thought("<seed:think>", "</seed:think>")),
    "bailing": _BAILING,
    "bailing_v2": _BAILING.but(
        system="<role>SYSTEM</role>{}<|role_end|>",
        user="<role>HUMAN</role>{}<|role_end|>",
        marker="<|role_end|>",
        closed_history=None,
        result="<role>OBSERVATION</role>\n<tool_response>\n{}\n</tool_response><|role_end|>",
        tools="ling",
    ),
    "cohere": Wire(
        prefix="{bos}",
        system="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{}<|END_OF_TURN_TOKEN|>",
        user="<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{}<|END_OF_TURN_TOKEN|>",
        header="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    "dots_ocr": Wire(
        system="<|system|>{}<|endofsystem|>\n",
        user="<|user|>{}<|endofuser|>",
        header="<|assistant|>",
        marker="<|endofassistant|>",
    ),
    "exaone": Wire(system="[|system|]{}[|endofturn|]\n", user="[|user|]{}\n", header="[|assistant|]", separator="\n"),
    "gpt_oss": Wire(
        system="<|start|>system<|message|>{}<|end|>",
        default_system="You are ChatGPT, a large language model trained by OpenAI.",
        user="<|start|>user<|message|>{}<|end|>",
        header="<|start|>assistant",
        closed_history="<|end|>",
        thought=Thought(
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
            empty="<|channel|>final<|message|>",
            in_history=True,
            inner=True,
        ),
    ),
    "minimax1": Wire(
        system="<beginning_of_sentence>system ai_setting=assistant\n{}<end_of_sentence>\n",
        default_system="You are a helpful assistant.",
        user="<beginning_of_sentence>user name=user\n{}<end_of_sentence>\n",
        header="<beginning_of_sentence>ai name=assistant\n",
        marker="<end_of_sentence>",
        separator="\n",
        result="<beginning_of_sentence>tool name=tools\n{}<end_of_sentence>\n",
        tools="minimax1",
    ),
    "minimax2": Wire(
        system="]~!b[]~b]system\n{}[e~[\n",
        default_system="You are a helpful assistant. Your name is MiniMax-M2.1 and is built by MiniMax.",
        user="]~b]user\n{}[e~[\n",
        header="]~b]ai\n",
        marker="[e~[",
        separator="\n",
        results_opening="]~b]tool",
        result="\n<response>{}</response>",
        results_closing="[e~[\n",
        tools="minimax2",
        thought=Thought(),
    ),
    "olmo": Wire(prefix="{eos}", user="<|user|>\n{}", header="<|assistant|>\n"),
    "zephyr": Wire(
        system="<|system|>\n{}{eos}",
        default_system="You are Zephyr, a helpful assistant.",
        user="<|user|>\n{}{eos}",
        header="<|assistant|>\n",
    ),
    "youtu_vl": Wire(
        system="<|begin_of_text|>system\n{}<|end_of_text|>\n",
        default_system="You are a helpful assistant.",
        user="<|begin_of_text|>user\n{}<|end_of_text|>\n",
        header="<|begin_of_text|>assistant\n",
        marker="<|end_of_text|>",
        separator="\n",
    ),
}
