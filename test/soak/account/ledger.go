// Package account compares what a control plane says with what the tools noted
// themselves in a ledger, and lists every difference that the control plane did
// not announce. It is pure: evidence in, findings out.
package account

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Kind is what a line of the ledger tells.
type Kind string

// The kinds, each with the fields that follow it on its line.
const (
	Tool    Kind = "tool"    // verb attempt key: a tool was started for a state
	Overlap Kind = "overlap" // verb attempt key holder: another one of the same state was alive
	Create  Kind = "create"  // id owner address attempt: a resource was made
	Said    Kind = "said"    // id lines attempt: its creation has written all its output
	Destroy Kind = "destroy" // id owner address attempt: a resource was removed
)

// Record is one line of the ledger. The order of records is that in which the
// tools wrote them.
type Record struct {
	Kind    Kind
	Attempt string // <job>-<epoch>

	Verb   string // of Tool and Overlap: plan, apply, …
	Key    string // of Tool and Overlap: the state
	Holder string // of Overlap: the attempt that was still alive

	ID      string // of a resource
	Owner   string // of Create and Destroy: <install>/<component>
	Address string // of Create and Destroy
	Lines   int    // of Said
}

// Job returns the record's job.
func (r Record) Job() string { job, _ := split(r.Attempt); return job }

// split takes an attempt apart; the epoch of what is none is 0.
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

// Read reads a ledger. Each line is written at once, so one that cannot be read
// is an error, and not a writer that was killed.
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

var errFields = errors.New("not the fields of its kind")

func parse(f []string) (Record, error) {
	if len(f) == 0 {
		return Record{}, errFields
	}
	r := Record{Kind: Kind(f[0])}
	want := map[Kind][]*string{
		Tool:    {&r.Verb, &r.Attempt, &r.Key},
		Overlap: {&r.Verb, &r.Attempt, &r.Key, &r.Holder},
		Create:  {&r.ID, &r.Owner, &r.Address, &r.Attempt},
		Said:    {&r.ID, nil, &r.Attempt},
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
