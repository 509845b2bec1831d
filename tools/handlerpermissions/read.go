package main

import (
	"archive/tar"
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed reviewed.txt
var reviewedText string

// reviewed is the content of reviewed.txt.
type reviewed struct {
	namespaces map[string]string   // prefix of actions by namespace
	packages   map[string][]string // namespaces by package
	names      map[string][]string // further beginnings of names, by package
	types      map[string]string   // CloudFormation type by type of hashicorp/aws
	also       map[string][]string // actions by type
	nothing    map[string]bool     // data sources that need no permission
}

func readReviewed(text string) (reviewed, error) {
	r := reviewed{namespaces: map[string]string{}, packages: map[string][]string{}, names: map[string][]string{}, types: map[string]string{}, also: map[string][]string{}, nothing: map[string]bool{}}
	for i, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if f[0] == "nothing" {
			for _, typ := range f[1:] {
				r.nothing[typ] = true
			}
			continue
		}
		if len(f) < 3 {
			return r, fmt.Errorf("reviewed.txt, line %d has no value", i+1)
		}
		switch f[0] {
		case "namespace":
			r.namespaces[f[1]] = f[2]
		case "package":
			r.packages[f[1]] = f[2:]
		case "names":
			r.names[f[1]] = f[2:]
		case "type":
			r.types[f[1]] = "AWS::" + f[2]
		case "also":
			r.also[f[1]] = f[2:]
		default:
			return r, fmt.Errorf("reviewed.txt, line %d begins with %q", i+1, f[0])
		}
	}
	return r, nil
}

// The files of a clone of hashicorp/terraform-provider-awscc.
const (
	schemaFolder = "internal/service/cloudformation/schemas"
	schemaList   = "internal/provider/all_schemas.hcl"
)

// schemas is what the schemas of CloudFormation state.
type schemas struct {
	commit string
	types  map[string]handlers // by CloudFormation type
	names  map[string]string   // name in the provider hashicorp/awscc, without its prefix, by CloudFormation type
}

// handlers has the actions that the handlers of a type need.
type handlers struct {
	all  []string // sorted
	read []string // those of the handlers that read and delete; all if there are none
}

// valid matches an action, or a pattern of actions of one service.
var valid = regexp.MustCompile(`^[a-z0-9-]+:[A-Za-z][A-Za-z0-9]*\*?$`)

func readSchemas(ctx context.Context, clone string) (schemas, error) {
	s := schemas{types: map[string]handlers{}, names: map[string]string{}}
	commit, err := exec.CommandContext(ctx, "git", "-C", clone, "rev-parse", "HEAD").Output()
	if err != nil {
		return s, fmt.Errorf("git rev-parse in %s: %w", clone, err)
	}
	s.commit = strings.TrimSpace(string(commit))
	cmd := exec.CommandContext(ctx, "git", "-C", clone, "archive", "--format=tar", s.commit, schemaFolder, schemaList)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	err = s.readArchive(out)
	if _, rest := io.Copy(io.Discard, out); err == nil {
		err = rest
	}
	if waited := cmd.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("git archive in %s: %w", clone, waited)
	}
	if err == nil && (len(s.types) == 0 || len(s.names) == 0) {
		err = fmt.Errorf("%s has no schemas of resource types", clone)
	}
	return s, err
}

func (s schemas) readArchive(r io.Reader) error {
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case h.Name == schemaList:
			err = s.readNames(files)
		case path.Ext(h.Name) == ".json":
			err = s.readSchema(files)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", h.Name, err)
		}
	}
}

var (
	schemaName = regexp.MustCompile(`^resource_schema "aws_(\w+)"`)
	schemaType = regexp.MustCompile(`^\s+cloudformation_type_name\s+= "(AWS::\w+::\w+)"`)
)

func (s schemas) readNames(r io.Reader) error {
	name := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if m := schemaName.FindStringSubmatch(lines.Text()); m != nil {
			name = m[1]
		} else if m := schemaType.FindStringSubmatch(lines.Text()); m != nil {
			s.names[m[1]] = name
		}
	}
	return lines.Err()
}

func (s schemas) readSchema(r io.Reader) error {
	var in struct {
		TypeName string
		Handlers map[string]struct{ Permissions []string }
	}
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return err
	}
	var h handlers
	for name, of := range in.Handlers {
		for _, action := range of.Permissions {
			prefix, rest, _ := strings.Cut(strings.TrimSpace(action), ":")
			action = strings.ToLower(prefix) + ":" + rest
			if !valid.MatchString(action) {
				continue // a mistake in a schema, such as an ARN
			}
			h.all = append(h.all, action)
			if name == "read" || name == "delete" {
				h.read = append(h.read, action)
			}
		}
	}
	if len(h.all) == 0 {
		return nil // CloudFormation itself handles some types, and states no permissions
	}
	slices.Sort(h.all)
	h.all = slices.Compact(h.all)
	if len(h.read) == 0 {
		h.read = h.all
	}
	s.types[in.TypeName] = h
	return nil
}

// provider is what the source of hashicorp/aws states.
type provider struct {
	version  string
	packages map[string]*servicePackage
}

type servicePackage struct {
	resources map[string]bool // names of types
	others    map[string]bool // of data sources and ephemeral resources that are no resources
	prefixes  []string        // how its names begin; the longest is first
}

func (p provider) resources() (n int) {
	for _, s := range p.packages {
		n += len(s.resources)
	}
	return n
}

var (
	listing   = regexp.MustCompile(`^func \(p \*servicePackage\) (\w+)\(`)
	typeName  = regexp.MustCompile(`TypeName: +"(aws_\w+)"`)
	named     = regexp.MustCompile(`^service "(\w+)"`)
	prefix    = regexp.MustCompile(`^\s+(?:correct|actual)\s+= "(aws_.*)"`)
	beginning = regexp.MustCompile(`aws_[a-z0-9_]*`)
)

func readProvider(folder string) (provider, error) {
	p := provider{packages: map[string]*servicePackage{}}
	version, err := os.ReadFile(filepath.Join(folder, "version", "VERSION"))
	if err != nil {
		return p, err
	}
	p.version = strings.TrimSpace(string(version))
	files, err := filepath.Glob(filepath.Join(folder, "internal", "service", "*", "service_package_gen.go"))
	if err != nil || len(files) == 0 {
		return p, fmt.Errorf("%s has no lists of resources: %w", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return p, err
		}
		name := filepath.Base(filepath.Dir(file))
		s := &servicePackage{resources: map[string]bool{}, others: map[string]bool{}, prefixes: []string{"aws_", "aws_" + name + "_"}}
		p.packages[name] = s
		list := ""
		for line := range strings.SplitSeq(string(text), "\n") {
			if m := listing.FindStringSubmatch(line); m != nil {
				list = m[1]
			}
			m := typeName.FindStringSubmatch(line)
			switch {
			case m == nil:
			case list == "FrameworkResources" || list == "SDKResources":
				s.resources[m[1]] = true
			case strings.HasSuffix(list, "DataSources") || list == "EphemeralResources":
				s.others[m[1]] = true
			}
		}
		maps.DeleteFunc(s.others, func(name string, _ bool) bool { return s.resources[name] })
	}
	text, err := os.ReadFile(filepath.Join(folder, "names", "data", "names_data.hcl"))
	if err != nil {
		return p, err
	}
	at := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if m := named.FindStringSubmatch(line); m != nil {
			at = m[1]
		} else if m := prefix.FindStringSubmatch(line); m != nil && p.packages[at] != nil {
			p.packages[at].prefixes = append(p.packages[at].prefixes, beginning.FindAllString(m[1], -1)...)
		}
	}
	return p, nil
}
