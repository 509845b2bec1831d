// Package graph orders named nodes by their dependencies. It computes the waves in which nodes can run, finds a cycle,
// and reverses the graph for a teardown. It does no I/O and keeps no state. The results do not depend on the order in
// which nodes are listed, because nodes without an order between them are sorted by name.
package graph

import (
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Node is a name and the names of the nodes that must finish before this node starts.
type Node struct {
	Name  string   `json:"name"`
	Needs []string `json:"needs,omitempty"` // in any order; a repeated name counts once
}

// Order returns the nodes' names in waves. Every node is in the earliest wave after the waves of all nodes that it
// needs. The names in a wave are sorted and may run at the same time. The concatenated waves are a valid serial
// order.
//
// The error is of fairlead.KindInvalid. Its code is "duplicate-node", "unknown-node" (a needed node is not among
// nodes) or "cycle" (the message shows the cycle; Cycle returns it).
func Order(nodes []Node) ([][]string, error) {
	needs, err := index(nodes)
	if err != nil {
		return nil, err
	}
	missing := make(map[string]int, len(needs)) // by node: how many nodes that it needs are not in a wave yet
	neededBy := make(map[string][]string, len(needs))
	var wave []string
	for name, list := range needs {
		missing[name] = len(list)
		if len(list) == 0 {
			wave = append(wave, name)
		}
		for _, need := range list {
			neededBy[need] = append(neededBy[need], name)
		}
	}
	var waves [][]string
	placed := 0
	for len(wave) > 0 {
		slices.Sort(wave)
		waves = append(waves, wave)
		placed += len(wave)
		var next []string
		for _, name := range wave {
			for _, dependent := range neededBy[name] {
				if missing[dependent]--; missing[dependent] == 0 {
					next = append(next, dependent)
				}
			}
		}
		wave = next
	}
	if placed < len(needs) {
		return nil, fairlead.Invalid(fairlead.CodeCycle, "the dependencies form a cycle, in which each needs the next: %s",
			strings.Join(Cycle(nodes), " -> "))
	}
	return waves, nil
}

// Cycle returns the path of a cycle, or nil if there is none. The path begins and ends with the same name, which
// sorts first among the names on the cycle. Each node of the path needs the next node. For a node that needs itself,
// the path is [a a]. Needed nodes that are not in the list nodes are ignored.
func Cycle(nodes []Node) []string {
	needs := merge(nodes)
	const (
		onPath = 1
		left   = 2
	)
	mark := make(map[string]int, len(needs))
	var path, cycle []string
	var visit func(name string) bool
	visit = func(name string) bool {
		mark[name] = onPath
		path = append(path, name)
		for _, need := range needs[name] {
			switch mark[need] {
			case onPath:
				cycle = slices.Clone(path[slices.Index(path, need):])
				return true
			case 0:
				if visit(need) {
					return true
				}
			}
		}
		path = path[:len(path)-1]
		mark[name] = left
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if mark[name] == 0 && visit(name) {
			first := slices.Index(cycle, slices.Min(cycle))
			cycle = append(cycle[first:len(cycle):len(cycle)], cycle[:first]...)
			return append(cycle, cycle[0])
		}
	}
	return nil
}

// Reverse returns the graph of a teardown, sorted by name. In it, each node needs the nodes that needed it before.
// Reverse drops needed nodes that are not in the list nodes, because this teardown does not destroy them.
func Reverse(nodes []Node) []Node {
	forward := merge(nodes)
	backward := make(map[string][]string, len(forward))
	for name, needs := range forward {
		for _, need := range needs {
			backward[need] = append(backward[need], name)
		}
	}
	reversed := make([]Node, 0, len(forward))
	for _, name := range slices.Sorted(maps.Keys(forward)) {
		slices.Sort(backward[name])
		reversed = append(reversed, Node{Name: name, Needs: backward[name]})
	}
	return reversed
}

// index returns each node's needs, sorted and without duplicates. It returns an error if two nodes have the same name
// or a need is not among nodes.
func index(nodes []Node) (map[string][]string, error) {
	needs := merge(nodes)
	if len(needs) < len(nodes) {
		seen := make(map[string]bool, len(nodes))
		for _, n := range nodes {
			if seen[n.Name] {
				return nil, fairlead.Invalid(fairlead.CodeDuplicateNode, "%q is listed twice", n.Name)
			}
			seen[n.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		for _, need := range needs[name] {
			if _, ok := needs[need]; !ok {
				return nil, fairlead.Invalid(fairlead.CodeUnknownNode, "%q needs %q, which does not exist", name, need)
			}
		}
	}
	return needs, nil
}

// merge returns each node's needs, sorted and without duplicates. It merges nodes of the same name.
func merge(nodes []Node) map[string][]string {
	needs := make(map[string][]string, len(nodes))
	for _, n := range nodes {
		needs[n.Name] = append(needs[n.Name], n.Needs...)
	}
	for name, list := range needs {
		slices.Sort(list)
		needs[name] = slices.Compact(list)
	}
	return needs
}
