// Package sessionpolicy makes the session policy of an apply: what the credentials of its tool may do is what the role of the operation may
// do and what the session policy names. It names the services of AWS that the approved changes call, so what runs in an apply can reach
// no other service.
//
// The services are in a table, by type of resource. It comes from the permissions that the handlers of CloudFormation declare, see
// tools/handlerpermissions. A change of a type that the table does not have could call any service: no policy can be made for it.
//
// The package is pure. Its functions are safe for concurrent use.
package sessionpolicy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// MaxSize is the largest session policy that STS accepts, in characters.
const MaxSize = 2048

// Needs is what an apply uses besides the services of its changes.
type Needs struct {
	Buckets []string // names of the buckets with its state, its saved plan and its providers
	Images  bool     // whether it reads providers from repositories of images
}

// Policy is a session policy.
type Policy struct {
	Document string   // JSON, at most MaxSize characters
	Services []string // those that it permits whole, sorted; it can permit single actions of others
}

// Narrowed is the result for the changes of an apply.
type Narrowed struct {
	// Policies has the narrowest policy first. Each permits all that the ones before it permit. STS can refuse a policy, because it also
	// limits a packed form that it does not document. None: the policy would be too large, or there are types that are not mapped.
	Policies []Policy
	// Unmapped are the types of resources that the table does not have, sorted.
	Unmapped []string
}

// Kinds returns the types of resources of AWS that an apply of the changes uses, sorted. A change of the providers hashicorp/aws and
// hashicorp/awscc calls AWS, except if it only changes the state.
func Kinds(changes []changeset.Change) []string {
	var kinds []string
	for _, c := range changes {
		if ofAWS(c.Kind) && c.Action != changeset.Move && c.Action != changeset.Forget {
			kinds = append(kinds, c.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// The beginnings of the types of the providers of AWS.
const (
	classic = "aws_"
	cloud   = "awscc_"
)

func ofAWS(kind string) bool {
	return strings.HasPrefix(kind, classic) || strings.HasPrefix(kind, cloud)
}

// Unmapped returns those of the types that the table does not have. Types of other providers are not among them.
func Unmapped(kinds []string) (out []string) {
	for _, kind := range kinds {
		if _, ok := services().of(kind); ofAWS(kind) && !ok {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// For returns the session policies for an apply that uses the types of resources. Types of other providers need nothing of AWS.
func For(kinds []string, n Needs) Narrowed {
	if un := Unmapped(kinds); len(un) > 0 {
		return Narrowed{Unmapped: un}
	}
	whole, others := map[string]bool{}, map[string]bool{}
	for _, kind := range kinds {
		e, _ := services().of(kind)
		for _, s := range e.services {
			whole[s] = true
		}
		for _, a := range e.actions {
			others[a] = true
		}
	}
	maps.DeleteFunc(others, func(action string, _ bool) bool { return whole[serviceOf(action)] })
	var out Narrowed
	for _, coarser := range []func(string) string{exactly, verb, service} {
		actions := actionsOf(slices.Sorted(maps.Keys(whole)), others, coarser)
		p := Policy{Document: document(actions, n)}
		for _, a := range actions {
			if name, ok := strings.CutSuffix(a, ":*"); ok {
				p.Services = append(p.Services, name)
			}
		}
		if len(p.Document) <= MaxSize && (len(out.Policies) == 0 || out.Policies[len(out.Policies)-1].Document != p.Document) {
			out.Policies = append(out.Policies, p)
		}
	}
	return out
}

// Before returns the session policy for what runs before the changes are known: it permits what Needs names, and no service.
func Before(n Needs) string { return document(nil, n) }

func serviceOf(action string) string {
	service, _, _ := strings.Cut(action, ":")
	return service
}

func exactly(action string) string { return action }

func service(action string) string { return serviceOf(action) + ":*" }

// verb returns the pattern of the actions of the same service that begin with the same verb: ec2:Create* of ec2:CreateTags.
func verb(action string) string {
	service, name, _ := strings.Cut(action, ":")
	for i, r := range name {
		if r == '*' { // it is a pattern
			break
		}
		if i > 0 && (r < 'a' || r > 'z') {
			return service + ":" + name[:i] + "*"
		}
	}
	return action
}

// actionsOf returns the whole services and the other actions, which coarser makes fewer. A pattern stands for the actions that it
// matches.
func actionsOf(whole []string, others map[string]bool, coarser func(string) string) []string {
	var list []string
	for action := range others {
		list = append(list, coarser(action))
	}
	slices.Sort(list)
	list = slices.Compact(list)
	list = slices.DeleteFunc(list, func(action string) bool {
		return slices.ContainsFunc(list, func(other string) bool {
			begin, pattern := strings.CutSuffix(other, "*")
			return pattern && other != action && strings.HasPrefix(action, begin)
		})
	})
	for _, s := range whole {
		list = append(list, s+":*")
	}
	slices.Sort(list)
	return list
}

// statement is a statement of a policy. The order of its fields is that of the document.
type statement struct {
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string]string `json:",omitempty"`
}

// alwaysWithServices are actions that many types need and that do nothing without a service that the policy names: they give a role to it,
// make the role with which it works, and look at a key.
var alwaysWithServices = [...]string{"iam:CreateServiceLinkedRole", "iam:GetRole", "iam:PassRole", "kms:DescribeKey"}

func document(actions []string, n Needs) string {
	var list []statement
	if len(actions) > 0 {
		list = append(list, statement{Effect: "Allow", Action: append(slices.Clone(actions), alwaysWithServices[:]...), Resource: []string{"*"}})
	}
	// A service uses the key of its data with the rights of its caller, who must be permitted to call the service.
	list = append(list, statement{Effect: "Allow", Action: []string{"kms:*"}, Resource: []string{"*"}, Condition: map[string]map[string]string{"Null": {"kms:ViaService": "false"}}})
	if len(n.Buckets) > 0 {
		var resources []string
		for _, b := range slices.Compact(slices.Sorted(slices.Values(n.Buckets))) {
			resources = append(resources, "arn:*:s3:::"+b, "arn:*:s3:::"+b+"/*")
		}
		list = append(list, statement{Effect: "Allow", Action: []string{"s3:DeleteObject", "s3:GetBucketVersioning", "s3:GetObject", "s3:ListBucket", "s3:PutObject"}, Resource: resources})
	}
	if n.Images {
		list = append(list, statement{Effect: "Allow", Action: []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer", "ecr:ListImages"}, Resource: []string{"*"}})
	}
	text, err := json.Marshal(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", list})
	if err != nil {
		panic(fmt.Sprintf("encode a session policy: %v", err)) // texts always encode
	}
	return string(text)
}

//go:embed services.txt
var servicesText string

// table is the content of services.txt.
type table struct {
	entries map[string]entry
	same    map[string]string   // name of an entry by type of hashicorp/aws
	also    map[string][]string // actions by the beginning of types of hashicorp/aws
}

// entry is what a change of a type calls.
type entry struct {
	services []string // whole
	actions  []string // of other services
}

// services reads the table at its first use: most steps make no session policy.
var services = sync.OnceValue(func() table {
	t := table{entries: map[string]entry{}, same: map[string]string{}, also: map[string][]string{}}
	for line := range strings.Lines(servicesText) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2 || strings.HasPrefix(line, "#"):
		case f[1] == "=":
			t.same[f[0]] = f[2]
		case f[1] == "+":
			t.also[f[0]] = f[2:]
		case f[1] == "-": // no service
			t.entries[f[0]] = entry{}
		default:
			t.entries[f[0]] = entry{services: strings.Split(f[1], ","), actions: f[2:]}
		}
	}
	return t
})

// throughCloudFormation are the actions with which the provider hashicorp/awscc asks CloudFormation to call the handlers.
const throughCloudFormation = "cloudformation:*Resource*"

// of returns the entry of a type.
func (t table) of(kind string) (entry, bool) {
	if name, ok := strings.CutPrefix(kind, cloud); ok {
		e, ok := t.entries[name]
		e.actions = append(slices.Clone(e.actions), throughCloudFormation)
		return e, ok
	}
	e, ok := t.entries[kind] // a data source
	if to, is := t.same[kind]; is {
		e, ok = t.entries[to]
	} else if name, is := strings.CutPrefix(kind, classic); is && !ok {
		e, ok = t.entries[name]
	}
	for begin, actions := range t.also {
		if kind == begin || strings.HasPrefix(kind, begin+"_") {
			e.actions = append(slices.Clone(e.actions), actions...)
		}
	}
	return e, ok
}
