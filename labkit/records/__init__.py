"""Records: one schema for everything, written whole, read whole."""

from labkit.records.load import Ignored as Ignored
from labkit.records.load import Loaded as Loaded
from labkit.records.load import chips as chips
from labkit.records.load import fingerprint as fingerprint
from labkit.records.load import load as load
from labkit.records.load import read_all as read_all
from labkit.records.load import runs_fingerprint as runs_fingerprint
from labkit.records.published import read_chips as read_chips
from labkit.records.read import BadRecord as BadRecord
from labkit.records.read import NotARun as NotARun
from labkit.records.read import parse_run as parse_run
from labkit.records.read import read_run as read_run
from labkit.records.schema import Code as Code
from labkit.records.schema import Header as Header
from labkit.records.schema import Kind as Kind
from labkit.records.schema import Row as Row
from labkit.records.schema import Run as Run
from labkit.records.write import check_folder as check_folder
from labkit.records.write import encode as encode
from labkit.records.write import new_run_id as new_run_id
from labkit.records.write import utc_now as utc_now
from labkit.records.write import write as write
