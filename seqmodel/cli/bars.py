"""Progress bars that fit any terminal width; import lazily, because this loads rich."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, Task
from rich.table import Table
from rich.text import Text

MIN_BAR, MAX_BAR = 4, 40


class Bars(Progress):
    """Lines with a name, a bar and news on stderr, erased at the end.

    A task's `news` are strings, the most important first; those that do not fit are left out. Long
    names are cut at the start.
    """

    def __init__(self) -> None:
        self._terminal = Console(stderr=True)  # its width is needed before `console` exists
        super().__init__(console=self._terminal, transient=True)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """The lines, laid out for the terminal's current width."""
        visible_tasks = [task for task in tasks if task.visible]
        names = [task.description for task in visible_tasks]
        width, names, news = fitted(
            self._terminal.width, names, [task.fields["news"] for task in visible_tasks]
        )
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        for task, name, text in zip(visible_tasks, names, news, strict=True):
            table.add_row(Text(name), BarColumn(width).render(task), Text(text))
        return table

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def fitted(
    room: int, names: Sequence[str], news: Sequence[Sequence[str]]
) -> tuple[int, list[str], list[str]]:
    """The bar width, names and news of lines that fit in `room` cells."""
    first = max((cell_len(parts[0]) for parts in news if parts), default=0)
    widest = max(map(cell_len, names), default=0)
    for_names = min(widest, max(room - MIN_BAR - first - 2, 1))
    for_news = room - MIN_BAR - for_names - 2
    texts = [_fitting_news(parts, for_news) for parts in news]
    bar = room - for_names - 2 - max(map(cell_len, texts), default=0)
    bar = max(1, min(MAX_BAR, bar))
    return bar, [_cut_start(name, for_names) for name in names], texts


def _fitting_news(parts: Sequence[str], room: int) -> str:
    lines = ("  ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((line for line in lines if cell_len(line) <= room), "")


def _cut_start(name: str, room: int) -> str:
    shorter = (f"…{name[k:]}" for k in range(1, len(name) + 1))
    return next(text for text in (name, *shorter) if cell_len(text) <= room)
