package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table is the content of pkg/sessionpolicy/services.txt.
type table struct {
	entries  map[string]entry  // by name in hashicorp/awscc without its prefix, and by names of data sources
	same     map[string]string // name of an entry by type of hashicorp/aws, where the names differ
	also     map[string][]string
	unmapped []string // types of resources of hashicorp/aws
}

// entry is what a change of a type calls.
type entry struct {
	services []string // whole
	actions  []string // of other services
}

// always are actions that each session policy has, or that no role of an operation has. The key of a service's data is used through the
// service.
func always(action string) bool {
	service, name, _ := strings.Cut(action, ":")
	return service == "kms" || service == "sts" || service == "iam" && slices.Contains([]string{"PassRole", "GetRole", "CreateServiceLinkedRole"}, name)
}

func tableOf(c schemas, p provider, r reviewed) (table, error) {
	t := table{entries: map[string]entry{}, same: map[string]string{}, also: r.also}
	prefixes := prefixesOf(c, r)
	for typ, h := range c.types {
		if name := c.names[typ]; name != "" {
			t.entries[name] = entryOf(h, prefixes[namespaceOf(typ)])
		}
	}
	for typ, to := range r.types {
		if _, ok := t.entries[c.names[to]]; !ok {
			return t, fmt.Errorf("reviewed.txt maps %s to %s, which has no schema", typ, to)
		}
	}
	for name, s := range p.packages {
		namespaces := r.packages[name]
		if namespaces == nil {
			namespaces = namesakes(name, prefixes)
		}
		for _, n := range namespaces {
			if prefixes[n] == "" {
				return t, fmt.Errorf("reviewed.txt has the namespace %s, which has no schema", n)
			}
		}
		t.add(s, namespaces, c, prefixes, r, append(s.prefixes, r.names[name]...))
	}
	slices.Sort(t.unmapped)
	return t, nil
}

func namespaceOf(typ string) string { return strings.Split(typ, "::")[1] }

// namesakes returns the namespace whose name is that of the package.
func namesakes(name string, prefixes map[string]string) []string {
	for n := range prefixes {
		if strings.EqualFold(n, name) {
			return []string{n}
		}
	}
	return nil
}

// prefixesOf returns the prefix of the actions of each namespace.
func prefixesOf(c schemas, r reviewed) map[string]string {
	votes := map[string]map[string]int{}
	for typ, h := range c.types {
		n := namespaceOf(typ)
		if votes[n] == nil {
			votes[n] = map[string]int{}
		}
		for _, service := range servicesOf(h.read) {
			votes[n][service] += 1000
		}
		for _, action := range h.all {
			service, _, _ := strings.Cut(action, ":")
			votes[n][service]++ // decides if two have the same number of types
		}
	}
	out := map[string]string{}
	for n, v := range votes {
		out[n] = cmp.Or(r.namespaces[n], most(v))
	}
	return out
}

func most(votes map[string]int) string {
	names := slices.Sorted(maps.Keys(votes))
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Or(votes[a]-votes[b], strings.Compare(b, a)) })
}

func servicesOf(actions []string) (out []string) {
	for _, action := range actions {
		service, _, _ := strings.Cut(action, ":")
		out = append(out, service)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// entryOf returns the entry of a type whose namespace has the prefix.
func entryOf(h handlers, prefix string) entry {
	if !slices.Contains(servicesOf(h.all), prefix) { // such as cognito-identity in the namespace of cognito-idp
		votes := map[string]int{}
		for _, action := range h.read {
			service, _, _ := strings.Cut(action, ":")
			votes[service]++
		}
		prefix = most(votes)
	}
	e := entry{services: []string{prefix}}
	for _, action := range h.all {
		service, name, _ := strings.Cut(action, ":")
		if service == prefix || always(action) {
			continue
		}
		if service == "ec2" && strings.HasPrefix(name, "Describe") {
			action = "ec2:Describe*" // the networks of a resource
		}
		e.actions = append(e.actions, action)
	}
	slices.Sort(e.actions)
	e.actions = slices.Compact(e.actions)
	return e
}

// add adds the types of a package.
func (t *table) add(s *servicePackage, namespaces []string, c schemas, services map[string]string, r reviewed, prefixes []string) {
	byName := map[string]string{}
	for _, n := range slices.Backward(namespaces) { // of two types with one name, that of the first namespace
		for typ := range c.types {
			if namespaceOf(typ) == n && c.names[typ] != "" {
				name := plain(strings.Split(typ, "::")[2])
				byName[name], byName[plain(n)+name] = c.names[typ], c.names[typ]
			}
		}
	}
	slices.SortFunc(prefixes, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	find := func(typ string) string {
		if to := r.types[typ]; to != "" {
			return c.names[to]
		}
		for _, prefix := range prefixes {
			name, ok := strings.CutPrefix(typ, prefix)
			for _, begin := range []string{"", "db", "cache", "backup", "auth", "resource"} { // as in DBInstance, CacheCluster
				if to := byName[begin+plain(name)]; ok && to != "" {
					return to
				}
			}
		}
		return ""
	}
	own := map[string]string{}
	for typ := range s.resources {
		if to := find(typ); to != "" {
			own[typ] = to
		}
	}
	for typ := range s.resources {
		to := own[typ]
		for begin := typ; to == "" && strings.Contains(begin, "_"); {
			begin = begin[:strings.LastIndexByte(begin, '_')]
			to = own[begin]
		}
		if to == "" {
			t.unmapped = append(t.unmapped, typ)
		} else if "aws_"+to != typ {
			t.same[typ] = to
		}
	}
	for typ := range s.others {
		if r.nothing[typ] {
			t.entries[typ] = entry{services: []string{none}}
		}
	}
	var e entry
	for _, n := range namespaces {
		e.services = append(e.services, services[n])
	}
	slices.Sort(e.services)
	if e.services = slices.Compact(e.services); len(e.services) == 0 {
		return
	}
	for typ := range s.others {
		if !r.nothing[typ] {
			t.entries[typ] = e
		}
	}
}

// none is the service of a type that calls AWS for nothing that needs a permission.
const none = "-"

// plain returns a name in small letters, without its separators.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func (t table) text(c schemas, p provider) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Generated by tools/handlerpermissions. Do not edit.\n#\n"+
		"# The permissions of handlers are facts of AWS's schemas of CloudFormation's resource types, as the repository hashicorp/terraform-provider-awscc has\n"+
		"# them at commit %s. Names of types are facts of that repository and of hashicorp/terraform-provider-aws %s, both MPL-2.0.\n"+
		"# No text of the three is in this file.\n#\n"+
		"# NAME SERVICES [ACTIONS OF OTHER SERVICES]   NAME: of hashicorp/awscc without awscc_, or a data source of hashicorp/aws; -: no service\n"+
		"# TYPE = NAME                                 a type of hashicorp/aws that is not aws_ and a NAME\n"+
		"# TYPE + ACTIONS                              what the provider calls besides, for types that begin so\n", c.commit, p.version)
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		fmt.Fprintln(&b, strings.TrimSpace(name+" "+strings.Join(e.services, ",")+" "+strings.Join(e.actions, " ")))
	}
	for _, typ := range slices.Sorted(maps.Keys(t.same)) {
		fmt.Fprintln(&b, typ, "=", t.same[typ])
	}
	for _, typ := range slices.Sorted(maps.Keys(t.also)) {
		fmt.Fprintln(&b, typ, "+", strings.Join(t.also[typ], " "))
	}
	return b.Bytes()
}
