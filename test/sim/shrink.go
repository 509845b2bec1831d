package sim

import (
	"fmt"
	"slices"
	"strings"
)

// maxShrinks bounds the runs that shrinking takes.
const maxShrinks = 400

// Shrink finds a small set of what happened in a failed run with which it still
// fails in the same way: it leaves out ever smaller parts for as long as the
// invariant is violated (Zeller's delta debugging). again runs the seed with
// what it is given and nothing else.
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

// Report tells of a failed run: what did not hold, what it takes, what
// happened, and how to see it again.
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
