// Package debian reads an index of Debian's packages and resolves dependencies. It does no I/O
// of its own.
package debian

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Package is one package of an index.
type Package struct {
	Name, Version    string
	Filename, SHA256 string
	depends          []string // alternatives, separated by |
}

// Index holds the newest version of each package, by name and by what it provides.
type Index map[string]Package

// Add adds the packages of an index file (deb822).
func (x Index) Add(r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	p, provides := Package{}, ""
	end := func() {
		if p.Name != "" {
			x.put(p.Name, p)
			for _, name := range split(provides, ",") {
				if _, real := x[bare(name)]; !real {
					x.put(bare(name), p)
				}
			}
		}
		p, provides = Package{}, ""
	}
	for in.Scan() {
		if in.Text() == "" {
			end()
			continue
		}
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch name {
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		case "Filename":
			p.Filename = value
		case "SHA256":
			p.SHA256 = value
		case "Provides":
			provides = value
		case "Depends", "Pre-Depends":
			p.depends = append(p.depends, split(value, ",")...)
		}
	}
	end()
	return in.Err()
}

func (x Index) put(name string, p Package) {
	if old, ok := x[name]; !ok || old.Name == p.Name && Compare(p.Version, old.Version) > 0 || old.Name != p.Name && name == p.Name {
		x[name] = p
	}
}

// Closure returns the named packages and all that they depend on, sorted by name, without
// those in except. Of alternatives it takes the first that exists.
func (x Index) Closure(names, except []string) ([]Package, error) {
	found := map[string]Package{}
	for todo := slices.Clone(names); len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		alternatives := split(name, "|")
		if slices.ContainsFunc(alternatives, func(a string) bool { return slices.Contains(except, bare(a)) }) {
			continue
		}
		i := slices.IndexFunc(alternatives, func(a string) bool { _, ok := x[bare(a)]; return ok })
		if i < 0 {
			return nil, fmt.Errorf("the index has no package %q", name)
		}
		p := x[bare(alternatives[i])]
		if _, ok := found[p.Name]; ok {
			continue
		}
		found[p.Name] = p
		todo = append(todo, p.depends...)
	}
	var all []Package
	for _, p := range found {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// bare returns the name of a dependency without version and architecture.
func bare(d string) string {
	d, _, _ = strings.Cut(d, " ")
	d, _, _ = strings.Cut(d, ":")
	return d
}

func split(list, by string) (parts []string) {
	for p := range strings.SplitSeq(list, by) {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

// Compare compares two versions as Debian's policy defines it (section 5.6.12): the result is negative
// if a is older.
func Compare(a, b string) int {
	epochA, a := epoch(a)
	epochB, b := epoch(b)
	if c := number(epochA, epochB); c != 0 {
		return c
	}
	upstreamA, revisionA := revision(a)
	upstreamB, revisionB := revision(b)
	if c := part(upstreamA, upstreamB); c != 0 {
		return c
	}
	return part(revisionA, revisionB)
}

func revision(v string) (upstream, revision string) {
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return v[:i], v[i+1:]
	}
	return v, "0"
}

func part(a, b string) int {
	for a != "" || b != "" {
		var textA, textB, digitsA, digitsB string
		textA, a = span(a, false)
		textB, b = span(b, false)
		if c := text(textA, textB); c != 0 {
			return c
		}
		digitsA, a = span(a, true)
		digitsB, b = span(b, true)
		if c := number(digitsA, digitsB); c != 0 {
			return c
		}
	}
	return 0
}

func epoch(v string) (epoch, rest string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		return e, rest
	}
	return "0", v
}

// span splits the leading digits, or the leading characters that are no digits, from s.
func span(s string, digits bool) (head, tail string) {
	i := strings.IndexFunc(s, func(r rune) bool { return (r >= '0' && r <= '9') != digits })
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

// text compares parts without digits: ~ is before the end, the end before letters, letters before others.
func text(a, b string) int {
	order := func(s string, i int) int {
		switch {
		case i >= len(s):
			return 0
		case s[i] == '~':
			return -1
		case s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z':
			return int(s[i])
		}
		return int(s[i]) + 256
	}
	for i := range max(len(a), len(b)) {
		if c := order(a, i) - order(b, i); c != 0 {
			return c
		}
	}
	return 0
}

func number(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
