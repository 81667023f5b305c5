// All styles of the workbench, one file per area; later files may override earlier ones.

import aliasing from "./aliasing.css";
import base from "./base.css";
import cache from "./cache.css";
import compared from "./compared.css";
import compilations from "./compilations.css";
import code from "./code.css";
import facts from "./facts.css";
import graph from "./graph.css";
import overview from "./overview.css";
import records from "./records.css";
import saved from "./saved.css";
import search from "./search.css";
import short from "./short.css";
import shell from "./shell.css";
import stages from "./stages.css";
import tables from "./tables.css";
import timeline from "./timeline.css";
import tour from "./tour.css";
import wrapper from "./wrapper.css";

export default [
  base,
  tables,
  stages,
  cache,
  code,
  compilations,
  graph,
  aliasing,
  overview,
  records,
  saved,
  timeline,
  wrapper,
  facts,
  shell,
  search,
  compared,
  tour,
  short,
].join("\n");
