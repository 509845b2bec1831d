// Package account compares the records of a control plane with a ledger that the tools wrote
// themselves. It lists every difference that the control plane did not announce. The package
// has no side effects: its input is evidence, its output findings.
package account

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Kind is the kind of a line of the ledger.
type Kind string

// The kinds, each with the fields that follow it on its line.
const (
	Tool    Kind = "tool"    // verb attempt key: a tool started on a state
	Overlap Kind = "overlap" // verb attempt key holder: another tool ran on the same state
	Create  Kind = "create"  // id owner address attempt: a resource was created
	Printed Kind = "printed" // id lines attempt: the creation of the resource wrote all its output
	Destroy Kind = "destroy" // id owner address attempt: a resource was removed
)

// Record is one line of the ledger. Records are in the order in which the tools wrote them.
type Record struct {
	Kind    Kind
	Attempt string // <job>-<epoch>

	Verb   string // of Tool and Overlap: plan, apply, …
	Key    string // of Tool and Overlap: the state
	Holder string // of Overlap: the attempt whose tool still ran

	ID      string // of a resource
	Owner   string // of Create and Destroy: <install>/<component>
	Address string // of Create and Destroy
	Lines   int    // of Printed
}

// Job returns the job of the record's attempt.
func (r Record) Job() string { job, _ := split(r.Attempt); return job }

// split splits an attempt into job and epoch. If the text is not an attempt, the epoch is 0.
func split(attempt string) (job string, epoch int64) {
	i := strings.LastIndexByte(attempt, '-')
	if i < 0 {
		return attempt, 0
	}
	epoch, err := strconv.ParseInt(attempt[i+1:], 10, 64)
	if err != nil {
		return attempt, 0
	}
	return attempt[:i], epoch
}

// Read reads a ledger. Each line is one write, so an invalid line is an error and not the work
// of a writer that was killed.
func Read(r io.Reader) ([]Record, error) {
	var all []Record
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		rec, err := parse(strings.Fields(s.Text()))
		if err != nil {
			return nil, fmt.Errorf("line %d of the ledger, %q: %w", n, s.Text(), err)
		}
		all = append(all, rec)
	}
	return all, s.Err()
}

var errFields = errors.New("the fields do not match the kind")

func parse(f []string) (Record, error) {
	if len(f) == 0 {
		return Record{}, errFields
	}
	r := Record{Kind: Kind(f[0])}
	want := map[Kind][]*string{
		Tool:    {&r.Verb, &r.Attempt, &r.Key},
		Overlap: {&r.Verb, &r.Attempt, &r.Key, &r.Holder},
		Create:  {&r.ID, &r.Owner, &r.Address, &r.Attempt},
		Printed: {&r.ID, nil, &r.Attempt},
		Destroy: {&r.ID, &r.Owner, &r.Address, &r.Attempt},
	}[r.Kind]
	if want == nil || len(f) != len(want)+1 {
		return Record{}, errFields
	}
	for i, to := range want {
		if to != nil {
			*to = f[i+1]
			continue
		}
		n, err := strconv.Atoi(f[i+1])
		if err != nil {
			return Record{}, errFields
		}
		r.Lines = n
	}
	return r, nil
}
