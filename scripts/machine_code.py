"""What machine code does to floats: the instructions of CUBINs, sorted into kinds and counted."""

import collections
import re
import struct
import subprocess
import tempfile

# An instruction: its address, perhaps a predicate, its name, its operands.
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[\w:]+)*)([^;]*);")
INSTRUCTION_BYTES = 16
# Integers to and from floats: the compiler's integer division.
INTEGER_CONVERSION = re.compile(r"U?F2I|U?I2F")
# The low 13 bits cleared.
TF32_MASK = "LOP3 0xffffe000"


def kind(name, operands):
    """What a check calls an instruction; None for those that no check is about."""
    if re.match(r"\w*MMA\b", name) and not name.startswith("HFMA2"):
        return name
    if name.startswith("F2FP"):
        # Before sm_89 f16 is the kind without a name: F2FP.PACK_AB.
        formats = re.findall(r"TF32|BF16|E4M3|E5M2|E2M1", name)
        return f"F2FP.{formats[0] if formats else 'F16'}"
    if INTEGER_CONVERSION.match(name):
        return None
    if name.startswith(("F2F", "FRND")):
        return name
    if re.match(r"D(ADD|MUL|FMA|SETP|MNMX)", name):
        return name
    if re.match(r"H(FMA|ADD|MUL|SETP|MNMX)2", name):
        # A constant on its way into a register: HFMA2 R1, -RZ, RZ, low, high.
        is_move = name.startswith("HFMA2") and "-RZ, RZ," in operands
        return None if is_move else ".".join(name.split(".")[:2])
    if (packed := re.match(r"(FFMA|FMUL|FADD|FSETP)2?\b", name)) is not None:
        return packed[1]
    if re.match(r"(LDL|STL)\b", name):
        return name
    if name.startswith("LOP3") and "0xffffe000" in operands:
        return TF32_MASK
    return None


class Code:
    """A CUBIN: its target, and the machine code of each function; once read, how often each kind occurs."""

    def __init__(self, cubin):
        sections, flags = struct.unpack_from("<Q", cubin, 0x28)[0], struct.unpack_from("<I", cubin, 0x30)[0]
        size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", cubin, sections + size * i) for i in range(count)]
        self.target = f"sm_{flags >> 8 & 0xFF}"
        self.texts = {}
        for name, _, _, _, start, length in headers:
            name_at = headers[names][4] + name
            name = cubin[name_at : cubin.index(b"\0", name_at)].decode()
            if name.startswith(".text."):
                self.texts[name.removeprefix(".text.")] = cubin[start : start + length]
        self.functions = {name: collections.Counter() for name in self.texts}
        self.instructions = sum(map(len, self.texts.values())) // INSTRUCTION_BYTES
        self.unread = self.instructions


def read(codes, disassembler):
    """Reads CUBINs of one target together, since the disassembler takes a while to start."""
    functions = [(code, name, text) for code in codes for name, text in code.texts.items()]
    with tempfile.NamedTemporaryFile() as binary:
        binary.write(b"".join(text for _, _, text in functions))
        binary.flush()
        arch = codes[0].target.replace("sm_", "SM")
        command = [disassembler, "--binary", arch, "--no-dataflow", binary.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    end = 0
    instructions = INSTRUCTION.finditer(text)
    instruction = next(instructions, None)
    for code, name, machine_code in functions:
        end += len(machine_code)
        while instruction and int(instruction[1], 16) < end:
            code.unread -= 1
            if (found := kind(instruction[2], instruction[3])) is not None:
                code.functions[name][found] += 1
            instruction = next(instructions, None)
