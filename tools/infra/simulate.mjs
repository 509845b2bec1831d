// simulate.mjs evaluates IAM permissions. It reads a JSON array of simulations from
// standard input and writes an array of {decision} or {error} to standard output. A
// decision is "Allowed", "ExplicitlyDenied" and so on.
import { createRequire } from 'node:module'
import { argv, stdin, stdout } from 'node:process'

const { runSimulation } = createRequire(argv[2] + '/')('@cloud-copilot/iam-simulate')

let text = ''
for await (const chunk of stdin) text += chunk

const answers = []
for (const simulation of JSON.parse(text)) {
  const r = await runSimulation(simulation, {})
  answers.push(r.resultType === 'error' ? { error: r.errors } : { decision: r.overallResult })
}
stdout.write(JSON.stringify(answers))
