package sim

import (
	"fmt"
	"slices"
	"strings"
)

// maxShrinks is the maximum number of runs of Shrink.
const maxShrinks = 400

// Shrink finds a small set of faults and actions with which a failed run still violates the
// same invariant. It leaves out smaller and smaller parts of the set (Zeller's delta
// debugging). The function again runs the seed with only the given faults and actions.
func Shrink(failed Result, again func(only []string) Result) Result {
	invariant := failed.Violations[0].Invariant
	best := failed
	runs := 0
	try := func(only []string) bool {
		if runs++; runs > maxShrinks {
			return false
		}
		r := again(only)
		ok := slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Invariant == invariant })
		if ok && len(r.Happened) <= len(best.Happened) {
			best = r
		}
		return ok
	}
	for n := 2; len(best.Happened) > 0; {
		parts := split(best.Happened, n)
		smaller := false
		for i := range parts {
			rest := slices.Concat(slices.Concat(parts[:i]...), slices.Concat(parts[i+1:]...))
			if try(rest) {
				n, smaller = max(n-1, 2), true
				break
			}
		}
		switch {
		case runs > maxShrinks:
			return best
		case smaller:
		case n >= len(best.Happened):
			return best
		default:
			n = min(2*n, len(best.Happened))
		}
	}
	return best
}

func split(all []string, n int) [][]string {
	n = min(n, len(all))
	var parts [][]string
	for i := range n {
		parts = append(parts, all[i*len(all)/n:(i+1)*len(all)/n])
	}
	return parts
}

// Report describes a failed run: the violations, the faults and actions, the trace, and the
// command that repeats the run.
func Report(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d:\n", r.Seed)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	fmt.Fprintf(&b, "with no more than:\n")
	for _, h := range r.Happened {
		fmt.Fprintf(&b, "  %s\n", h)
	}
	if len(r.Trace) > 0 {
		fmt.Fprintf(&b, "trace:\n")
		for _, line := range r.Trace {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	fmt.Fprintf(&b, "again:\n  make simulate SEED=%d ONLY='%s'\n", r.Seed, strings.Join(r.Happened, "; "))
	return b.String()
}
