package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/graph"
)

// shop is the diamond from the documentation.
func shop() []graph.Node {
	return []graph.Node{
		{Name: "web", Needs: []string{"cache", "database"}},
		{Name: "database", Needs: []string{"network"}},
		{Name: "cache", Needs: []string{"network"}},
		{Name: "network"},
	}
}

func TestDiamondHasWavesAndReverseOrder(t *testing.T) {
	waves, err := graph.Order(shop())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(waves), "[[network] [cache database] [web]]"; got != want {
		t.Errorf("waves are %s, want %s", got, want)
	}

	waves, err = graph.Order(graph.Reverse(shop()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(waves), "[[web] [cache database] [network]]"; got != want {
		t.Errorf("the teardown order is %s, want %s", got, want)
	}
}

func TestOrderRefusesInvalidGraphs(t *testing.T) {
	for name, c := range map[string]struct {
		nodes   []graph.Node
		code    fairlead.Code
		message string
	}{
		"a cycle, shown from the name that sorts first": {
			[]graph.Node{{"x", []string{"c"}}, {"c", []string{"b"}}, {"b", []string{"a"}}, {"a", []string{"c"}}},
			"cycle", "the dependencies form a cycle, in which each needs the next: a -> c -> b -> a",
		},
		"a node that needs itself": {
			[]graph.Node{{"a", []string{"a"}}},
			"cycle", "the dependencies form a cycle, in which each needs the next: a -> a",
		},
		"a need that does not exist": {
			[]graph.Node{{"a", []string{"b"}}},
			"unknown-node", `"a" needs "b", which does not exist`,
		},
		"a duplicate name": {
			[]graph.Node{{"a", nil}, {"a", nil}},
			"duplicate-node", `"a" is listed twice`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			waves, err := graph.Order(c.nodes)
			if waves != nil || fairlead.KindOf(err) != fairlead.KindInvalid || fairlead.CodeOf(err) != c.code || err.Error() != c.message {
				t.Errorf("got %v, %s %v, want %s %s", waves, fairlead.CodeOf(err), err, c.code, c.message)
			}
		})
	}
}

func TestFunctionsDoNotChangeTheirArgument(t *testing.T) {
	nodes := shop()
	if _, err := graph.Order(nodes); err != nil {
		t.Fatal(err)
	}
	graph.Reverse(nodes)
	if fmt.Sprint(nodes) != fmt.Sprint(shop()) {
		t.Errorf("the functions changed their argument to %v", nodes)
	}
}

func TestEmptyGraphHasEmptyOrder(t *testing.T) {
	waves, err := graph.Order(nil)
	if err != nil || len(waves) != 0 {
		t.Errorf("got %v, %v", waves, err)
	}
	if c := graph.Cycle(nil); c != nil {
		t.Errorf("got cycle %v", c)
	}
}

// acyclic draws a graph whose nodes need only nodes drawn before them. Names and listing order are random.
func acyclic(t *rapid.T) []graph.Node {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 20, rapid.ID).Draw(t, "names")
	nodes := make([]graph.Node, len(names))
	for i, name := range names {
		nodes[i].Name = name
		if i > 0 {
			nodes[i].Needs = rapid.SliceOfN(rapid.SampledFrom(names[:i]), 0, 4).Draw(t, "needs")
		}
	}
	return rapid.Permutation(nodes).Draw(t, "listed")
}

// anyGraph draws a graph. Most of these graphs have cycles.
func anyGraph(t *rapid.T) []graph.Node {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,2}`), 1, 12, rapid.ID).Draw(t, "names")
	nodes := make([]graph.Node, len(names))
	for i, name := range names {
		nodes[i] = graph.Node{Name: name, Needs: rapid.SliceOfN(rapid.SampledFrom(names), 0, 2).Draw(t, "needs")}
	}
	return nodes
}

func needsOf(nodes []graph.Node) map[string][]string {
	needs := map[string][]string{}
	for _, n := range nodes {
		needs[n.Name] = n.Needs
	}
	return needs
}

func TestEveryNodeFollowsItsLastNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := acyclic(t)
		waves, err := graph.Order(nodes)
		if err != nil {
			t.Fatal(err)
		}
		wave := map[string]int{}
		for i, names := range waves {
			if !slices.IsSorted(names) {
				t.Fatalf("wave %v is not sorted", names)
			}
			for _, name := range names {
				wave[name] = i + 1
			}
		}
		if len(wave) != len(nodes) {
			t.Fatalf("%d of %d nodes are in a wave", len(wave), len(nodes))
		}
		for _, n := range nodes {
			last := 0
			for _, need := range n.Needs {
				last = max(last, wave[need])
			}
			if wave[n.Name] != last+1 {
				t.Fatalf("%s is in wave %d, its last need in wave %d", n.Name, wave[n.Name], last)
			}
		}
	})
}

func TestOrderIgnoresHowNodesAreListed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyGraph(t)
		again := rapid.Permutation(nodes).Draw(t, "again")
		a, errA := graph.Order(nodes)
		b, errB := graph.Order(again)
		if fmt.Sprint(a, errA) != fmt.Sprint(b, errB) {
			t.Fatalf("got %v %v, and for another listing order %v %v", a, errA, b, errB)
		}
	})
}

func TestReverseKeepsNeededNodesLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := acyclic(t)
		waves, err := graph.Order(graph.Reverse(nodes))
		if err != nil {
			t.Fatal(err)
		}
		needs := needsOf(nodes)
		gone := map[string]bool{}
		for _, name := range slices.Concat(waves...) {
			gone[name] = true
			for _, need := range needs[name] {
				if gone[need] {
					t.Fatalf("%s was torn down before %s, which needs it", need, name)
				}
			}
		}
		if len(gone) != len(nodes) {
			t.Fatalf("%d of %d nodes were torn down", len(gone), len(nodes))
		}
	})
}

func TestCycleMatchesOrderAndIsReal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyGraph(t)
		_, err := graph.Order(nodes)
		cycle := graph.Cycle(nodes)
		if (err == nil) != (cycle == nil) {
			t.Fatalf("Order returns %v, but Cycle returns %v", err, cycle)
		}
		if cycle == nil {
			return
		}
		needs := needsOf(nodes)
		if len(cycle) < 2 || cycle[0] != cycle[len(cycle)-1] || cycle[0] != slices.Min(cycle) {
			t.Fatalf("%v does not end where it begins, or does not begin with the name that sorts first", cycle)
		}
		for i, name := range cycle[1:] {
			if !slices.Contains(needs[cycle[i]], name) {
				t.Fatalf("%v: %s does not need %s", cycle, cycle[i], name)
			}
		}
		inner := slices.Sorted(slices.Values(cycle[1:]))
		if len(slices.Compact(inner)) != len(cycle)-1 {
			t.Fatalf("%v contains a node twice", cycle)
		}
	})
}
