// simulate.mjs evaluates IAM permissions. Each line of standard input is a JSON array of
// simulations. For each it writes a line with a JSON array of {decision} or {error}. A
// decision is "Allowed", "ExplicitlyDenied" and so on. Its argument is the folder of the
// packages.
import { createRequire } from 'node:module'
import { argv, stdin, stdout } from 'node:process'
import { createInterface } from 'node:readline'

const { runSimulation } = createRequire(argv[1] + '/')('@cloud-copilot/iam-simulate')

for await (const line of createInterface({ input: stdin, crlfDelay: Infinity })) {
  const answers = []
  for (const simulation of JSON.parse(line)) {
    const r = await runSimulation(simulation, {})
    answers.push(r.resultType === 'error' ? { error: r.errors } : { decision: r.overallResult })
  }
  stdout.write(JSON.stringify(answers) + '\n')
}
