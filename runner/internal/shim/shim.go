//go:build unix

// Package shim is the process between an agent and a step that keeps together
// all that a job starts. Whatever descends from it stays below it: a process
// whose parent ends, the step as well, becomes its child (PR_SET_CHILD_SUBREAPER).
// It lives as long as anything below it does, also without an agent, and ends
// with the last of them. So the kernel itself says when nothing of a job is left,
// to the agent that has started it and to the next one.
//
// It is this program itself, started under another name: see package child.
package shim

import "github.com/fairlead/fairlead/runner/internal/shim/child"

// Name is what a shim is called by: its first argument.
const Name = child.Name

// Process tells two processes of one number apart.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // as proc.Info has it
}
