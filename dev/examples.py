"""Programs of pytorch/examples as a suite for dev/suites: each is one test, on data made here.

A program takes the device that it finds: `xla` where PJRT_DEVICE is set, else the CPU. What takes
none is told one by an edit, and so is what would be downloaded.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SECONDS = 600
TOLERANCE = 0.15  # of the last loss: dropout and noise are drawn by the device

DEVICE = "import torch; torch.set_default_device('{device}')\n"
NUMPY = ("torch.from_numpy(state)", "torch.from_numpy(state).to('{device}')")
SPLIT = ("idx[:1000], idx[1000:1500], idx[1500:]", "idx[:40], idx[40:80], idx[80:]")
MNIST = "--epochs 1 --batch-size 32 --log-interval 1"
WORDS = "--data words --epochs 1 --lr 2 --emsize 32 --nhid 32 --log-interval 5 --dropout 0 {accel}"


@dataclass(frozen=True)
class Program:
    """A file, its arguments ("{accel}" for the option that asks for the device), and edits."""

    file: str
    arguments: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    takes_no_device: bool = False
    after: str = ""  # the program whose files it reads
    random: bool = False  # its loss depends on what the device or nobody's seed draws


PROGRAMS = {
    "mnist": Program("mnist/main.py", MNIST),
    "mnist_rnn": Program("mnist_rnn/main.py", f"{MNIST} {{accel}}"),
    "mnist_forward_forward": Program(
        "mnist_forward_forward/main.py",
        "--epochs 4 --train_size 64 --test_size 32 --log-interval 1",
    ),
    "vae": Program("vae/main.py", MNIST),
    "siamese_network": Program(
        "siamese_network/main.py",
        f"{MNIST} --dry-run --batch-size 4 --test-batch-size 4",
        random=True,
    ),
    "dcgan": Program(
        "dcgan/main.py",
        "--dataset fake --dry-run --batchSize 4 --ngf 8 --ndf 8 --manualSeed 1 {accel}",
    ),
    "gcn": Program(
        "gcn/main.py", "--epochs 10 --val-every 2", (("with requests", "if 0:#"), SPLIT)
    ),
    "gat": Program("gat/main.py", "--epochs 10 --val-every 2", (SPLIT,)),
    "super_resolution": Program(
        "super_resolution/main.py", "--upscale_factor 3 --batchSize 4 --nEpochs 1 {accel}"
    ),
    "super_resolve": Program(
        "super_resolution/super_resolve.py",
        "--input_image dataset/BSDS300/images/test/0.jpg --model model_epoch_1.pth "
        "--output_filename out.png {accel}",
        after="super_resolution",
    ),
    **{
        f"word_language_model {kind}": Program(
            "word_language_model/main.py", f"{WORDS} --model {kind}"
        )
        for kind in ("RNN_TANH", "RNN_RELU", "LSTM", "GRU", "Transformer")
    },
    "generate": Program(
        "word_language_model/generate.py",
        "--data words --words 30 {accel}",
        after="word_language_model LSTM",
    ),
    "reinforce": Program(
        "reinforcement_learning/reinforce.py",
        "--log-interval 1",
        (NUMPY, ("in count(1)", "in range(1, 4)")),
        takes_no_device=True,
    ),
    "actor_critic": Program(
        "reinforcement_learning/actor_critic.py",
        "--log-interval 1",
        (NUMPY, ("in count(1)", "in range(1, 4)")),
        takes_no_device=True,
    ),
    "time_sequence_prediction": Program(
        "time_sequence_prediction/train.py",
        "--steps 1",
        (
            ("data = torch.load('traindata.pt')", "data = np.load('traindata.npy')"),
            ("torch.from_numpy(data", "torch.tensor(data"),
            ("detach().numpy()", "detach().cpu().numpy()"),
            ("future = 1000", "future = 20"),
        ),
        takes_no_device=True,
        random=True,
    ),
    "regression": Program(
        "regression/main.py",
        edits=(("count(1)", "range(1, 60)"),),
        takes_no_device=True,
        random=True,
    ),
    "imagenet": Program(
        "imagenet/main.py",
        "--dummy --epochs 1 -b 4 -j 1 -p 1 --seed 1 --lr 0.01",
        (("1281167", "8"), ("50000", "4")),
    ),
    "fast_neural_style": Program(
        "fast_neural_style/neural_style/neural_style.py",
        "train --dataset dataset/BSDS300/images --epochs 1 --batch-size 2 --image-size 64 "
        "--style-image dataset/BSDS300/images/test/0.jpg --style-size 64 --save-model-dir . "
        "--log-interval 1 {accel}",
        (
            ("models.VGG16_Weights.IMAGENET1K_V1", "None"),
            ("Image.ANTIALIAS", "Image.LANCZOS"),
        ),
    ),
    "single_gpu": Program(
        "distributed/ddp-tutorial-series/single_gpu.py",
        "1 1",
        (("device = 0", "device = '{device}'"),),
    ),
    **{
        f"fx {name}": Program(f"fx/{name}.py", takes_no_device=True)
        for name in (
            "inline_function invert module_tracer "
            "primitive_library profiling_tracer proxy_based_graph_creation replace_op "
            "subgraph_rewriter_basic_use wrap_output_dynamically"
        ).split()
    },
}


def run(folder: Path, device: str, names: list[str]) -> dict[str, str]:
    """What each program printed last of its loss ("passed" if nothing), or how it failed."""
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            program = PROGRAMS[name]
            place = Path(scratch) / (program.after or name)
            if not place.exists():
                prepare(folder, program, place, device)
            outcomes[f"{program.file}::{name}"] = start(program, place, device)
            print(device, name, outcomes[f"{program.file}::{name}"], flush=True)
    return outcomes


def start(program: Program, place: Path, device: str) -> str:
    file = place / "program" / program.file.partition("/")[2]
    accel = "--accel" if device == "xla" else ""
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    environment |= (
        {"PJRT_DEVICE": "CPU"} if device == "xla" else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )
    try:
        done = subprocess.run(
            [sys.executable, str(file), *program.arguments.format(accel=accel).split()],
            cwd=place / "program",
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["exit status " + str(done.returncode)])[-1]
    losses = re.findall(r"(?:loss|Loss|style)\D{0,3}:? *(\d+\.\d+(?:e[-+]\d+)?)", done.stdout)
    return losses[-1] if losses and not program.random else "passed"


def prepare(folder: Path, program: Program, place: Path, device: str) -> None:
    """The program's folder and its data."""
    source = place / "program"
    shutil.copytree(folder / program.file.partition("/")[0], source)
    make_digits(place / "data" / "MNIST" / "raw")
    make_images(source / "dataset" / "BSDS300" / "images")
    make_papers(source / "cora")
    make_words(folder / "word_language_model" / "data" / "wikitext-2" / "valid.txt", source)
    make_waves(source / "traindata.npy")
    (source / "results").mkdir(exist_ok=True)
    if not (source / "data").exists():
        (source / "data").symlink_to("../data")
    for file in source.rglob("*.py"):
        text = file.read_text()
        for old, new in program.edits:
            text = text.replace(old, new.format(device=device))
        main = file == source / program.file.partition("/")[2]
        header = DEVICE.format(device=device) if main and program.takes_no_device else ""
        file.write_text(header + text.replace("from __future__ import print_function", ""))


def make_digits(folder: Path) -> None:
    """128 images and labels in MNIST's format."""
    import numpy as np

    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        numbers = np.random.RandomState(len(part))
        images = numbers.randint(0, 256, (128, 28, 28), dtype=np.uint8)
        header = np.array([0x803, 128, 28, 28], ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = (np.arange(128) % 10).astype(np.uint8)
        header = np.array([0x801, 128], ">i4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


def make_images(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        for number in range(4):
            pixels = np.random.RandomState(number).randint(0, 256, (96, 96, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / part / f"{number}.jpg")


def make_papers(folder: Path) -> None:
    """A citation graph in Cora's format."""
    import numpy as np

    folder.mkdir()
    numbers, papers = np.random.RandomState(0), 200
    words = numbers.randint(0, 2, (papers, 30))
    lines = [f"{i} {' '.join(map(str, row))} class{i % 7}" for i, row in enumerate(words)]
    (folder / "cora.content").write_text("\n".join(lines))
    edges = {tuple(edge) for edge in numbers.randint(0, papers, (400, 2))}
    (folder / "cora.cites").write_text("\n".join(f"{a} {b}" for a, b in sorted(edges)))


def make_words(text: Path, folder: Path) -> None:
    (folder / "words").mkdir()
    lines = "\n".join(text.read_text().split("\n")[:60])
    for part in ("train", "valid", "test"):
        (folder / "words" / f"{part}.txt").write_text(lines)


def make_waves(file: Path) -> None:
    import numpy as np

    begins = np.random.RandomState(2).randint(-80, 80, (6, 1))
    np.save(file, np.sin((np.arange(60)[None] + begins) / 20.0))


def compare(results: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Losses that agree have passed."""
    compared: dict[str, dict[str, str]] = {"cpu": {}, "xla": {}}
    for name, expected in results["cpu"].items():
        actual = results["xla"].get(name, "did not run")
        if (wanted := number(expected)) is not None and (got := number(actual)) is not None:
            near = abs(got - wanted) <= TOLERANCE * abs(wanted)
            expected, actual = "passed", "passed" if near else f"loss {got}, the CPU's {wanted}"
        compared["cpu"][name], compared["xla"][name] = expected, actual
    return compared


def number(outcome: str) -> float | None:
    try:
        return float(outcome)
    except ValueError:
        return None
