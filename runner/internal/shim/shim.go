//go:build unix

// Package shim starts a step below a shim: a process between the agent and the step that keeps all
// processes of a job together. Every descendant of the shim stays below it: if a process's parent ends,
// even the step, the process becomes a child of the shim (PR_SET_CHILD_SUBREAPER). The shim ends when
// its last descendant has ended, also without an agent. So the end of the shim shows the agent that
// started it, and the next agent, that no process of the job is left.
//
// The shim is this program itself, started with another name as its first argument: see package child.
package shim

import "github.com/fairlead/fairlead/runner/internal/shim/child"

// Name is the first argument (argv[0]) of a shim.
const Name = child.Name

// Process identifies a process, even if another process gets the same PID later.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // as in proctree.Info
}
