"""Datasets of the hub, and folders, as the library ``datasets`` finds and reads them."""

import csv
import glob
import itertools
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
from datasets import BuilderConfig, Dataset, DatasetBuilder, DatasetDict

from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.data.files import (
    ENTRIES,
    TABLES,
    Columns,
    names_of,
    pairs_of_entries,
    read_pairs,
    suffix_of,
)
from wawa_transformer.data.tasks import SPLITS

FORMATS = {*TABLES, *ENTRIES} - {".txt"}  # of which the library makes one column


def pairs_of(
    name: str, config: str | None, columns: Columns, wanted: Collection[str]
) -> dict[str, Iterator[tuple[str, str]]]:
    """Read the pairs of each split of a dataset, or of a local folder.

    It has none if it lacks all splits that are ``wanted``.

    Raises:
        UserError: the library cannot read it, or it has no training split, which is wanted.
    """
    where, builder = f"task.hub={name}", None
    try:
        splits, builder = find(name, config)
        if builder and not (Path(name).is_dir() and has_own_files(builder)):
            splits = rows_of(builder, names_of(columns))
        if "train" in {*wanted} - {*splits}:
            raise LookupError("it has no split train")
    except Exception as error:  # the library raises dozens of classes
        cause = error.__cause__ or error
        # It may be several lines, and list a hundred suffixes.
        said = " ".join(str(cause).split())[:300] or type(cause).__name__
        if builder and " object at 0x" in said:
            said = f"the library reads no {builder.name} files"
        raise UserError(
            f"{where} cannot be used ({said}); name a dataset with a split train, one of several "
            f"configurations in task.hub_config, or a file in task.source."
        ) from None
    if not {*wanted} & {*splits}:
        return {}
    if builder and Path(name).is_dir():
        tell_files(Path(name), where, builder)
    return {
        split: pairs_of_entries(dicts_of(content), where, columns, f"{split} row")
        if isinstance(content, Dataset)
        else itertools.chain.from_iterable(
            read_pairs({"task.hub": Path(path)}, columns) for path in content
        )
        for split, content in splits.items()
    }


def find(name: str, config: str | None) -> tuple[Mapping[str, Any], DatasetBuilder | None]:
    """Find the splits of a dataset, and what builds them if the library did not save them."""
    here = Path(name).resolve()
    if here.is_file():
        raise LookupError("it is a file")
    if any((here / each).is_file() for each in ("state.json", "dataset_dict.json")):
        saved = datasets.load_from_disk(name)
        return saved if isinstance(saved, DatasetDict) else {"train": saved}, None
    if here.is_dir() and glob.escape(str(here)) != str(here):
        raise LookupError(
            f"the library of datasets takes [ ] * ? in {here} for a pattern; rename the folder"
        )
    builder = datasets.load_dataset_builder(name, config)
    files = builder.config.data_files or {}
    if here.is_dir() and [*files] == ["train"]:
        # The library knows names of splits in small letters alone.
        own: dict[str, list[str]] = {}
        for path in files["train"]:
            own.setdefault(Path(path).name.partition(".")[0].lower(), []).append(path)
        if "train" in own and {*own} & {"validation", "test"}:
            named = {split: own[split] for split in SPLITS if split in own}
            builder = datasets.load_dataset_builder(name, config, data_files=named)
    splits = builder.config.data_files or builder.info.splits or {}
    return {str(split): content for split, content in splits.items()}, builder


def tell_files(folder: Path, where: str, builder: DatasetBuilder) -> None:
    """Name files that are read as one split, and files that are not read."""
    for split, paths in (builder.config.data_files or {}).items():
        # A copy or an older text may have a split's name, too.
        inside = [name for path in paths for name in names_in(path)]
        if len(inside) > 1:
            said = ", ".join(sorted(inside))[:200]
            warn(f"{where}: {len(inside)} files are read as the split {split}: {said}")
    read = {path.resolve() for path in files_of(builder)}
    files = sorted(path for path in folder.rglob("[!.]*") if suffix_of(path.name) in FORMATS)
    rest = [str(path.relative_to(folder)) for path in files if path.resolve() not in read]
    if rest:
        warn(f"{where}: of its files, {', '.join(rest)[:200]} are not read")


def names_in(path: str) -> list[str]:
    """List the visible files inside a zip archive, or the name of another file."""
    if not zipfile.is_zipfile(path):
        return [Path(path).name]
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not re.search(r"(^|/)(\.|__)|/$", name)]
    return [f"{Path(path).name}/{name}" for name in names]


def files_of(builder: DatasetBuilder) -> list[Path]:
    """List the files that the library reads, of every split."""
    return [Path(path) for paths in (builder.config.data_files or {}).values() for path in paths]


def has_own_files(builder: DatasetBuilder) -> bool:
    """True if files of a folder can be read without what the library knows of them."""
    formats = {suffix_of(path.name) for path in files_of(builder)}
    # A README may set an encoding or another separator, which the library knows.
    usual, between = vars(type(builder.config)()), "\t" if ".tsv" in formats else ","
    told = {key for key, each in vars(builder.config).items() if each not in (usual[key], between)}
    return bool(formats) and formats <= FORMATS and told <= {*vars(BuilderConfig())}


def rows_of(builder: DatasetBuilder, names: list[str]) -> dict[str, Dataset]:
    """Let the library read the splits of a dataset, of which ``names`` are the columns."""
    if builder.name == "csv":  # in which NA and 007 are texts
        builder.config.na_filter = False
        builder.config.converters = dict.fromkeys(names, str)
        # In a table with tabs a quote is a character.
        if builder.config.sep == "\t" and ".csv" not in str(builder.config.data_files):
            builder.config.quoting = csv.QUOTE_NONE
    # Only downloads are cached: a changed file may have its old size and time.
    builder.download_and_prepare(download_mode="reuse_cache_if_exists")
    loaded = builder.as_dataset()
    # pandas takes the first columns for its index where rows have more than the header, and calls a
    # second column en en.1.
    odd = {f"{name}.1": f"it has the column {name} twice" for name in names}
    odd["__index_level_0__"] = "its rows have more columns than its header"
    columns = {name for part in loaded.values() for name in part.column_names}
    if builder.name == "csv" and (said := [odd[name] for name in odd if name in columns]):
        raise LookupError(said[0])
    return loaded


def dicts_of(split: Dataset) -> Iterator[dict[str, Any]]:
    """Yield the rows of a dataset."""
    for batch in split.with_format(None).iter(100):
        for row in zip(*batch.values(), strict=True):
            yield dict(zip(batch, row, strict=True))
