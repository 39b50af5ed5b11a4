"""The plan and the events of `transfer`, as lines and a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from nextword.progress.display import ProgressDisplay

if TYPE_CHECKING:
    from nextword.tasks.plan import Plan
    from nextword.training.events import Event

MAX_CLASSES = 8  # of the class balance
EARLY = "training may stop early, and keeps the last weights, not the best: consider --set phase.0.keep=best"


class TransferDisplay(ProgressDisplay):
    """Shows the data, one progress bar with the latest numbers, and a line for every validation."""

    def __init__(self, is_quiet: bool) -> None:
        super().__init__(is_quiet)
        self.metrics: Sequence[str] = ()
        self.keeps, self.patience, self.trains = "last", 0, True

    def on_plan(self, plan: Plan) -> None:
        """Describe the data before training starts."""
        task, phase = plan.task, plan.recipe.phases[-1]
        self.metrics, self.keeps, self.patience = task.config.metrics, phase.keep, phase.patience
        self.trains = task.trains
        if self.is_quiet:
            return
        fraction = task.config.train_fraction
        sizes = {split: task.count(examples) for split, examples in plan.examples.items()}
        counts = [f"{size:,} {split}" for split, size in sizes.items()]
        if fraction < 1:
            from nextword.tasks.base import count_fraction

            counts[list(sizes).index("train")] = (
                f"{count_fraction(sizes['train'], fraction):,} of {sizes['train']:,} train"
            )
        facts = " · ".join([task.wording().summary, *counts])
        self.print(f"[bold]{escape(plan.data.name)}[/]: {facts}")
        self._print_balance(plan, fraction)
        self._print_baselines(plan)
        early = self.patience and self.keeps == "last" and not task.config.merge_dev_into_train
        self.warn([*plan.notes, *([EARLY] if early else [])], indent="  ")

    def _print_balance(self, plan: Plan, fraction: float) -> None:
        seed = plan.recipe.phases[0].seed
        balance = list(plan.data.balance_of_fraction(fraction, seed).items())
        if balance:
            shown = [f"{escape(label)} {100 * share:.1f} %" for label, share in balance[:MAX_CLASSES]]
            more = [f"{len(balance) - MAX_CLASSES} more"] if len(balance) > MAX_CLASSES else []
            drawn = f" (of the examples that seed {seed} draws)" if fraction < 1 else ""
            self.print(f"  {' · '.join([*shown, *more])}{drawn}")

    def _print_baselines(self, plan: Plan) -> None:
        """What the model has to beat."""
        self.update("measuring baselines", 0, None)
        for name, baselines in plan.baselines(plan.recipe).items():
            part = plan.data.parts[name]
            split = plan.compared_split(part) and ("dev" if not plan.task.config.merge_dev_into_train else "test")
            if not split or not baselines:
                continue
            metric = next(iter(baselines[0].scored[split].metrics))
            scores = [
                f"{baseline.name} {100 * baseline.scored[split].metrics[metric]:.1f}"
                + (f" ({baseline.seconds:.1f} s)" if baseline.seconds >= 1 else "")
                for baseline in baselines
            ]
            of = f" of {escape(name)}" if name else ""
            self.print(f"  baselines{of}, {split} {metric}: {escape(' · '.join(scores))}")

    def __call__(self, event: Event) -> None:
        if self.is_quiet:
            return
        show = {"begin": self._begin, "step": self.show_step, "valid": self._valid, "end": self._end}
        if event.kind in show:
            show[event.kind](event)

    def _begin(self, event: Event) -> None:
        values = event.values
        self.total = values.get("steps") or None
        steps = "nothing is trained"
        if self.trains:
            steps = f"{values['steps']:,} steps ({values['steps'] / values['per_epoch']:.1f} epochs)"
        facts = f"{values['parameters']:,} parameters · {steps} · seed {values['seed']} · {values['device']}"
        self.print(f"[bold]{event.phase}[/]: {facts}")
        self.warn(values.get("notes", ()), indent="  ")

    def _valid(self, event: Event) -> None:
        scores = " · ".join(f"{name} {100 * event.values[name]:.1f}" for name in self.metrics)
        mark = " [green]best[/]" if event.values["best"] and self.keeps == "best" else ""
        epoch = f"epoch {event.epoch:.1f} · " if self.trains else ""
        self.print(f"  {epoch}dev {scores} · {event.seconds:,.0f} s{mark}")

    def _end(self, event: Event) -> None:
        if event.values.get("reason") == "patience":
            kept = "its weights are kept" if self.keeps == "best" else "the last weights are kept"
            best = f"the best was at step {event.values['best_step']:,}; {kept}"
            self.warn([f"stopped early: no improvement in more than {self.patience} validations ({best})"])
