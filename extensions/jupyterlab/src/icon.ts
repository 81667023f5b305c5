import { LabIcon } from "@jupyterlab/ui-components";

import svgstr from "./icon.svg";

export const icon = new LabIcon({ name: "aotviz:recording", svgstr });
