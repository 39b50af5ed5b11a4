"""`nextword serve`: language models over HTTP."""

from __future__ import annotations

import logging
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Precision, emit_json, print_line, print_table

if TYPE_CHECKING:
    from nextword.server.service import Service

EXAMPLE_KEY = "$NEXTWORD_API_KEY"
RUNS = "runs"


def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]…", help="Run folders, or folders of runs. Default: all in runs/.", show_default=False
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Others than loopback need a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", help="Port; 0: any that is free.", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str,
        typer.Option("--api-key", envvar="NEXTWORD_API_KEY", show_envvar=False, help="Key that clients must send."),
    ] = "",
    rows: Annotated[
        int, typer.Option("--rows", help="Requests that a model generates for at a time.", min=1, max=1024)
    ] = 32,
    queue: Annotated[
        int, typer.Option("--queue", help="Requests that may wait for a model; more get status 429.", min=1)
    ] = 256,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory of all models, such as 8GB. Default: no limit.")
    ] = "",
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Let pages of this origin use the server. Repeatable."),
    ] = None,
    chat: Annotated[
        str, typer.Option("--chat", metavar="TEMPLATE", help="Serve chats: plain, chatml or a Jinja file.")
    ] = "",
    no_train: Annotated[bool, typer.Option("--no-train", help="Do not let the page train models.")] = False,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Serve trained models over HTTP: the playground for a browser, OpenAI's API for its clients, and a JSON API.

    Models are loaded on first use. With --memory, the least recently used are unloaded again. A model is named after
    its folder. On a loopback address, the playground also trains models, and serves them at once. The key can also
    be set as NEXTWORD_API_KEY, where other users of the machine cannot see it. With --json, the address and the models
    are printed as JSON.

    [dim]Examples[/]
      nextword serve
      nextword serve runs/gpt2
      nextword serve runs/demo --port 8080
      nextword serve starter/gpt2 starter/bert --rows 8
      nextword serve runs/demo --memory 8GB --precision int8
      nextword serve runs/seq2seq --chat plain
      NEXTWORD_API_KEY=secret nextword serve runs/demo --host 0.0.0.0
    """
    from nextword.core.errors import MissingDependency

    folders = find_runs(runs or [])
    limit = parse_size(memory) if memory else None
    try:
        from nextword.server.app import create_app, listen, make_server
        from nextword.server.chat import find_template
        from nextword.server.security import Access, is_loopback, parse_origins
        from nextword.server.service import Service
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f'The server needs {error.name}: pip install "nextword[serve]".', package=error.name or ""
        ) from None
    from nextword.server.pool import ModelPool

    access = Access(host, api_key, parse_origins(cors or ()))
    template = find_template(chat) if chat else None
    pool = ModelPool(folders, limit, device=device, precision=precision, rows=rows, queue=queue)
    service = Service(pool, template)
    if is_loopback(host) and not no_train:
        service.allow_training(training_folder(runs or []))
    server = make_server(create_app(service, access))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    with listen(host, port) as socket:
        address = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
        if json:
            emit_json({"address": address, "models": {name: str(folder) for name, folder in folders.items()}})
        else:
            _introduce(address, service, bool(api_key))
        with suppress(KeyboardInterrupt):  # the usual end, after all requests have been answered
            server.run([socket])


def find_runs(runs: list[str]) -> dict[str, Path]:
    """Name → run folder. A folder that is not a run stands for the runs in it; no folder at all, for those in runs/."""
    from nextword.core.errors import InvalidSetting, RunError
    from nextword.run_folder import RunFolder, is_run

    named: list[tuple[str, Path]] = []  # a name that is empty is that of the folder
    for run in runs or [RUNS]:
        inside = sorted(path.parent for path in Path(run).glob("**/manifest.json")) if not is_run(run) else []
        inside = [path for path in inside if not any(part.startswith(".") for part in path.relative_to(run).parts)]
        named += [("-".join(path.relative_to(run).parts), path) for path in inside] or [("", Path(run))] * bool(runs)
    folders: dict[str, Path] = {}
    for name, path in named:
        folder = RunFolder.open(path)
        if not folder.has_model:
            if name:  # one of many in a folder, which is being trained
                continue
            raise RunError(f"{path} has no trained weights yet. Finish its training first.", path=path)
        name = name or folder.path.resolve().name
        if name in folders:
            raise InvalidSetting(
                f"Two runs are named {name}: {folders[name]} and {path}. Copy or link one under another name.",
                key="run",
            )
        folders[name] = path
    if runs and not folders:
        raise RunError(f"{' '.join(runs)}: no run has trained weights yet. Finish the training of one first.")
    return folders


def training_folder(runs: list[str]) -> Path:
    """Where the page trains: in the folder of runs that is served, else in runs/."""
    from nextword.run_folder import is_run

    is_folder = len(runs) == 1 and Path(runs[0]).is_dir() and not is_run(runs[0])
    return Path(runs[0] if is_folder else RUNS)


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_size(text: str) -> int:
    """Bytes: "8GB" → 8,000,000,000."""
    from nextword.core.errors import InvalidSetting

    plain = text.lower().strip().removesuffix("b")
    unit = plain[-1:] if plain[-1:] in UNITS else ""
    try:
        size = float(plain.removesuffix(unit)) * UNITS[unit]
        if not 0 < size < 2**63:
            raise ValueError
    except ValueError:
        raise InvalidSetting(f"--memory {text}: expected a size, such as 8GB or 500MB.", key="memory") from None
    return int(size)


def _introduce(address: str, service: Service, has_key: bool) -> None:
    """Print the address, what is served, and commands to try."""
    from nextword.core.io import format_number
    from nextword.html.formatting import format_count

    models = {entry["id"]: entry["nextword"] for entry in map(service.describe, service.pool.names)}
    print_line(f"[green]✓[/] Open [bold]{address}[/] in a browser: the playground. API reference: {address}/docs")
    if not models:
        by_hand = "Train some with `nextword compare`, in about five minutes, and start again."
        print_line(f"No model yet. {'The page offers to train the demo.' if service.jobs else by_hand}")
        print_line("[dim]Ctrl+C ends the server.[/]")
        return
    rows = [
        [
            escape(name),
            escape(facts["recipe"] or "–"),
            format_count(facts["parameters"]) if facts["parameters"] else "–",
            format_number(facts["bits_per_byte"], 3),
            ", ".join(facts["abilities"] or ()),
        ]
        for name, facts in models.items()
    ]
    print_table(("model", "recipe", "params", "bits/byte", "can"), rows, text_columns=("recipe", "can"))
    abilities = {name: facts["abilities"] or [] for name, facts in models.items()}
    name = next((name for name, can in abilities.items() if "generate" in can), next(iter(models)))
    place = address if len(models) == 1 else f"{address}/m/{name}"
    print_line("[dim]Try it, with curl, Python and lm-eval:[/]")
    for command in example_commands(place, name, abilities[name], has_key):
        print_line(f"  {escape(command)}")
    print_line("[dim]Ctrl+C ends the server.[/]")


def example_commands(address: str, model: str, abilities: list[str], has_key: bool) -> list[str]:
    """A request with curl, the same with Python, and, for a model that generates, an evaluation with lm-eval."""
    key = "os.environ['NEXTWORD_API_KEY']" if has_key else "'none'"
    header = f' -H "Authorization: Bearer {EXAMPLE_KEY}"' if has_key else ""
    client = f"import {'os, ' if has_key else ''}openai; c = openai.OpenAI(base_url='{address}/v1', api_key={key}); "
    if "generate" in abilities:
        route, body = "v1/completions", '{"prompt": "In the beginning", "max_tokens": 20}'
        call = f"c.completions.create(model='{model}', prompt='In the beginning', max_tokens=20).choices[0].text"
    elif "fill" in abilities:
        route, body = "api/fill", '{"text": "In the ___ God created the ___."}'
        call = f"c.embeddings.create(model='{model}', input='In the beginning').data[0].embedding[:5]"
    elif "predict" in abilities:
        route, body = "api/predict", '{"examples": ["In the beginning"]}'
        call = "[m.id for m in c.models.list()]"
    else:
        route, body = "v1/embeddings", '{"input": "In the beginning"}'
        call = f"c.embeddings.create(model='{model}', input='In the beginning').data[0].embedding[:5]"
    commands = [
        f"curl {address}/{route}{header} -H 'Content-Type: application/json' -d {shlex.quote(body)}",
        f'python -c "{client}print({call})"',
    ]
    if "generate" in abilities:
        arguments = f"model={model},base_url={address}/v1/completions"
        environment = f"OPENAI_API_KEY={EXAMPLE_KEY} " if has_key else ""
        commands.append(
            f"{environment}lm_eval --model local-completions --model_args {arguments} --tasks lambada_openai"
        )
    return commands
