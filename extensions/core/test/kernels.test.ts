import { describe, expect, test } from "vitest";

import { kernelsIn, kernelsOf, nodesOf } from "../src/code/kernels";
import { userFiles } from "../src/code/sources";
import type { Graph, Node } from "../src/graph";

function node(index: number, name: string, target: string, line = 0): Node {
  return {
    index,
    op: "f",
    name,
    target,
    args: [],
    kwargs: null,
    value: null,
    valueIndex: -1,
    source: line ? { file: "/home/ada/net.py", line, scope: "forward", code: `line ${line}` } : null,
    stack: "",
    modules: [],
    sequence: -1,
    backward: false,
    descriptor: "",
    checkpoint: "",
    inputs: [],
    users: [],
  };
}

const graph = {
  role: "forward",
  outputDescriptors: [],
  nodes: [
    node(0, "sin", "aten.sin.default", 7),
    node(1, "mul", "aten.mul.Tensor", 7),
    node(2, "mm", "aten.mm.default", 3),
    node(3, "exp", "aten.exp.default", 9),
    node(4, "sum_1", "aten.sum.dim_IntList"),
    node(5, "cumsum", "aten.cumsum.default"),
  ],
} as unknown as Graph;

const CPU = `# AOT ID: ['0_forward']
async_compile = AsyncCompile()

cpp_fused_mul_sin_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C" void kernel(float* x)
{
}
''')


cpp_fused_sum_1 = async_compile.cpp_pybinding(['float*'], r'''
extern "C" void kernel(float* x)
''')

class Runner:
    def call(self, args):
        cpp_fused_mul_sin_0(primals_1, buf0)
        # Topologically Sorted Source Nodes: [sin, mul], Original ATen: [aten.sin, aten.mul, aten.mm]
        extern_kernels.mm(buf0, primals_2, out=buf1)
        cpp_fused_sum_1(buf1)
        cpp_fused_sum_1(buf2)
        return (buf1, )

def benchmark(args):
    extern_kernels.bmm(args)
`;

const GPU = `# Topologically Sorted Source Nodes: [a], Original ATen: [aten.exp, aten.sum]
# Graph fragment:
#   %exp : Tensor "f32[8]"[num_users=1] = call_function[target=torch.ops.aten.exp.default](args = (%arg0_1,), kwargs = {})
#   %sum_1 : Tensor "f32[]"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%exp,), kwargs = {})
#   return %sum_1
triton_per_fused_exp_sum_0 = async_compile.triton('triton_per_fused_exp_sum_0', '''
import triton
''', device_str='cuda')

def call(args):
    with torch.cuda._DeviceGuard(0):
        triton_per_fused_exp_sum_0.run(arg0_1, buf0, 8, stream=stream0)
    return (buf0, )
`;

const TWICE = `async_compile = AsyncCompile()

cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C" void kernel(float* x)
''')

class Runner:
    def call(self, args):
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(primals_1, primals_2, out=buf0)
        # [Provenance debug handles] cpp_fused_relu_0:2
        cpp_fused_relu_0(buf0)
        # [Provenance debug handles] extern_kernels.mm:3
        # Topologically Sorted Source Nodes: [], Original ATen: [aten.mm]
        extern_kernels.mm(buf0, primals_3, out=buf1)
        # [Provenance debug handles] cpp_fused_relu_0:4
        cpp_fused_relu_0(buf1)
        # [Provenance debug handles] extern_kernels.mm:5
        extern_kernels.mm(buf1, primals_4, out=buf2)
        return (buf2, )
`;
const COMPUTED = new Map([
  ["extern_kernels.mm:1", ["mm"]],
  ["cpp_fused_relu_0:2", ["relu"]],
  ["extern_kernels.mm:3", ["mm_1"]],
  ["cpp_fused_relu_0:4", ["relu_1"]],
]);

describe("the kernels in Inductor's code", () => {
  test("belong call by call to the nodes that Inductor says, though two nodes have one operator", () => {
    const two = {
      nodes: [
        node(0, "mm", "aten.mm.default"),
        node(1, "relu", "aten.relu.default"),
        node(2, "mm_1", "aten.mm.default"),
        node(3, "relu_1", "aten.relu.default"),
        node(4, "mm_2", "aten.mm.default"),
      ],
    } as unknown as Graph;
    const kernels = kernelsIn(TWICE, COMPUTED);
    expect(kernels.map(({ name, first, calls, nodes }) => [name, first, calls, nodes])).toEqual([
      ["extern_kernels.mm", -1, [9], ["mm"]],
      ["cpp_fused_relu_0", 2, [11], ["relu"]],
      ["extern_kernels.mm", -1, [14], ["mm_1"]],
      ["cpp_fused_relu_0", 2, [16], ["relu_1"]],
      ["extern_kernels.mm", -1, [18], []],
    ]);
    expect(two.nodes.map((of) => kernelsOf(kernels, of).map(({ calls }) => calls))).toEqual([
      [[9]],
      [[11]],
      [[14]],
      [[16]],
      [[18]],
    ]);
    expect(nodesOf(kernels[2]!, two).map(({ name }) => name)).toEqual(["mm_1"]);
  });
  test("are found with their definitions and calls, and only those that the program calls", () => {
    expect(kernelsIn(CPU).map(({ name, first, last, calls }) => [name, first, last, calls])).toEqual([
      ["cpp_fused_mul_sin_0", 3, 7, [16]],
      ["extern_kernels.mm", -1, -1, [18]],
      ["cpp_fused_sum_1", 10, 12, [19, 20]],
    ]);
  });
  test("belong on a CPU to the operators that they are named after", () => {
    const kernels = kernelsIn(CPU);
    const of = (index: number): string[] => kernelsOf(kernels, graph.nodes[index]!).map(({ name }) => name);
    expect(of(0)).toEqual(["cpp_fused_mul_sin_0"]);
    expect(of(2)).toEqual(["extern_kernels.mm"]);
    expect(of(3)).toEqual([]);
    expect(of(5)).toEqual([]); // cumsum is not sum
    expect(nodesOf(kernels[0]!, graph).map(({ name }) => name)).toEqual(["sin", "mul"]);
  });
  test("belong on a GPU to the nodes that are listed above them", () => {
    const [kernel] = kernelsIn(GPU);
    expect(kernel).toMatchObject({ name: "triton_per_fused_exp_sum_0", nodes: ["exp", "sum_1"], calls: [11] });
    expect(kernelsOf([kernel!], graph.nodes[3]!)).toEqual([kernel]);
    expect(kernelsOf([kernel!], graph.nodes[0]!)).toEqual([]);
    expect(nodesOf(kernel!, graph).map(({ name }) => name)).toEqual(["exp", "sum_1"]);
  });
  test("are none in a text that is no such code", () => {
    expect(kernelsIn("")).toEqual([]);
    expect(kernelsIn("x = async_compile.cpp_pybinding(r'''")).toMatchObject([{ name: "x", first: 0, last: 0 }]);
  });
});

describe("the user's lines", () => {
  test("stand in the order of the file, each with its nodes", () => {
    expect(userFiles(graph)).toEqual([
      {
        file: "/home/ada/net.py",
        lines: [
          { line: 3, code: "line 3", scope: "forward", nodes: [2] },
          { line: 7, code: "line 7", scope: "forward", nodes: [0, 1] },
          { line: 9, code: "line 9", scope: "forward", nodes: [3] },
        ],
      },
    ]);
  });
});
