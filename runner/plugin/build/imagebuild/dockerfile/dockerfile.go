// Package dockerfile finds the images with which the build of a Dockerfile begins. The parser of BuildKit is no part of a
// step: it links the library of protocol buffers, which would delay the start of each step. This package reads less: only
// instructions that name an image, and the arguments that are in such names.
package dockerfile

import (
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Options are the settings of a build.
type Options struct {
	Target   string            // stage that becomes the image; "": the last one
	Args     map[string]string // values of ARG instructions, by name
	Targets  []string          // platforms of the image, such as linux/arm64
	Machines []string          // platforms that the machine of the build may have
}

// Base is an image that a Dockerfile names.
type Base struct {
	Name      string   // as the Dockerfile has it, with its arguments replaced
	Platforms []string // for which the build needs it, sorted
}

// Unread is a name of an image that this package cannot read.
type Unread struct {
	Line int
	Text string
}

// Bases returns the images that the build reads from registries, in the order of their names. It has those of all platforms
// of the image and of the machine, because their names can depend on both. It reports no mistake of the Dockerfile: the
// builder does.
func Bases(text string, o Options) ([]Base, []Unread) {
	all := newSource(text).instructions()
	found, unread := map[string]map[string]bool{}, map[Unread]bool{}
	for _, target := range o.Targets {
		for _, machine := range o.Machines {
			f := newFile(all, o.Args, target, machine)
			for _, use := range f.uses(o.Target) {
				if found[use.name] == nil {
					found[use.name] = map[string]bool{}
				}
				found[use.name][use.platform] = true
			}
			for _, u := range f.unread {
				unread[u] = true
			}
		}
	}
	var bases []Base
	for _, name := range slices.Sorted(maps.Keys(found)) {
		bases = append(bases, Base{Name: name, Platforms: slices.Sorted(maps.Keys(found[name]))})
	}
	return bases, slices.SortedFunc(maps.Keys(unread), func(a, b Unread) int { return a.Line - b.Line })
}

// file is a Dockerfile for one platform of the image and one of the machine.
type file struct {
	target string // platform
	stages []stage
	unread []Unread
}

// stage is a stage of a Dockerfile.
type stage struct {
	name     string // in lower case; "": none
	base     string // an image, or the name of an earlier stage; "": it cannot be read
	platform string
	from     []string // images, and names or numbers of other stages, from which it copies or mounts files
}

// use is an image that a stage needs for a platform.
type use struct{ name, platform string }

func newFile(all []instruction, given map[string]string, target, machine string) *file {
	f, env := &file{target: target}, map[string]string{}
	for prefix, platform := range map[string]string{"TARGET": target, "BUILD": machine} {
		parts := append(strings.SplitN(platform, "/", 3), "", "")
		env[prefix+"PLATFORM"], env[prefix+"OS"], env[prefix+"ARCH"], env[prefix+"VARIANT"] = platform, parts[0], parts[1], parts[2]
	}
	for _, in := range all {
		switch {
		case in.name == "ARG" && len(f.stages) == 0:
			for _, part := range in.args {
				argument(part, given, env)
			}
		case in.name == "FROM" && len(in.args) > 0:
			f.stages = append(f.stages, f.stage(in, env))
		case len(f.stages) > 0:
			s := &f.stages[len(f.stages)-1]
			s.from = append(s.from, sources(in)...)
		}
	}
	return f
}

// argument sets the variable of a global ARG instruction.
func argument(part string, given, env map[string]string) {
	name, value, has := strings.Cut(part, "=")
	if own, ok := given[name]; ok {
		env[name] = own
	} else if text, ok := expand(value, env); has && ok {
		env[name] = text
	}
}

// stage reads a FROM instruction.
func (f *file) stage(in instruction, env map[string]string) stage {
	s := stage{platform: f.target}
	if len(in.args) == 3 && strings.EqualFold(in.args[1], "AS") {
		s.name = strings.ToLower(in.args[2])
	}
	base, ok := expand(in.args[0], env)
	if !ok {
		f.unread = append(f.unread, Unread{in.line, in.args[0]})
		return s
	}
	s.base = base
	for _, value := range in.flag("platform") {
		if platform, ok := expand(value, env); ok && platform != "" {
			s.platform = platform
		} else {
			f.unread = append(f.unread, Unread{in.line, value})
		}
	}
	return s
}

// sources returns the images and stages from which an instruction copies or mounts files. Their names have no arguments.
func sources(in instruction) (from []string) {
	switch in.name {
	case "COPY":
		from = in.flag("from")
	case "RUN":
		for _, mount := range in.flag("mount") {
			fields, err := csv.NewReader(strings.NewReader(mount)).Read()
			if err != nil {
				continue // the builder reports it
			}
			for _, field := range fields {
				if key, value, _ := strings.Cut(field, "="); strings.EqualFold(key, "from") {
					from = append(from, value)
				}
			}
		}
	}
	return from
}

// uses returns the images that the target stage needs, also by other stages.
func (f *file) uses(target string) (all []use) {
	if len(f.stages) == 0 {
		return nil
	}
	last := len(f.stages) - 1
	if target != "" {
		if last = f.find(target, len(f.stages)); last < 0 {
			return nil
		}
	}
	seen := map[int]bool{}
	var visit func(int)
	need := func(name string, before int, platforms ...string) {
		if at := f.find(name, before); at >= 0 {
			visit(at)
			return
		}
		if name == "" || name == "scratch" {
			return
		}
		for _, platform := range platforms {
			all = append(all, use{name, platform})
		}
	}
	visit = func(at int) {
		if seen[at] {
			return
		}
		seen[at] = true
		s := f.stages[at]
		if base := f.named(s.base, at); base >= 0 { // FROM takes no number
			visit(base)
		} else if s.base != "scratch" && s.base != "" {
			all = append(all, use{s.base, s.platform})
		}
		for _, from := range s.from {
			need(from, at, s.platform, f.target)
		}
	}
	visit(last)
	return all
}

// find returns the index of the stage with the name or number, below the index before; -1: there is none.
func (f *file) find(name string, before int) int {
	if at := f.named(name, before); at >= 0 {
		return at
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < before {
		return n
	}
	return -1
}

// named returns the index of the last stage with the name, below the index before; -1: there is none.
func (f *file) named(name string, before int) int {
	for at := before - 1; at >= 0 && name != ""; at-- {
		if f.stages[at].name == strings.ToLower(name) {
			return at
		}
	}
	return -1
}
