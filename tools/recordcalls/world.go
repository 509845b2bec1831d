package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// tagResource is the tag that a runner gives to what the app makes.
const tagResource = "fairlead_install"

// Call is a question to IAM: an action on a resource, with the condition keys of the request
// and of the resource's tags at that time.
type Call struct {
	Operation string         `json:"operation"` // of the job: plan, apply, destroy
	Action    string         `json:"action"`
	Resource  string         `json:"resource"` // ARN, or "*"; the identifier of what does not exist yet is "*"
	Context   map[string]any `json:"context,omitempty"`
}

func (c Call) equal(other Call) bool { return reflect.DeepEqual(c, other) }

// world is what the earlier requests made.
type world struct {
	actions    *actions
	tags       map[string]map[string]string // of a resource, by keyOf
	existing   map[string]bool              // ARNs and identifiers that a request or an answer named
	paths      map[string]string            // of roles, policies and instance profiles, by "role/NAME"
	boundaries map[string]string            // of roles, by name
	profiles   map[string]string            // role of an instance profile, by name
	owners     map[string]string            // file system of a mount target, by identifier
}

func newWorld(a *actions) *world {
	return &world{actions: a, tags: map[string]map[string]string{}, existing: map[string]bool{}, paths: map[string]string{}, boundaries: map[string]string{}, profiles: map[string]string{}, owners: map[string]string{}}
}

// leaf is a text in the parameters or in the output, with the name of its field.
type leaf struct{ key, value string }

func leaves(key string, v any) (out []leaf) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, leaves(k, v[k])...)
		}
	case []any:
		for _, e := range v {
			out = append(out, leaves(key, e)...)
		}
	case string:
		out = append(out, leaf{key, v})
	}
	return out
}

// used is a resource that a call names.
type used struct {
	typ, arn string
	fresh    bool // the request makes it
}

// makes matches the operations that make a resource.
var makes = regexp.MustCompile(`^(Create|Run|Allocate|Register|Import|Request|Put|Publish|Subscribe|Upload|Set)`)

// tagging matches the operations that only change tags.
var tagging = regexp.MustCompile(`^(Tag|Untag|AddTags|RemoveTags|CreateTags$|DeleteTags$|CreateOrUpdateTags$|PutBucketTagging$|DeleteBucketTagging$|ChangeTags)`)

// removes matches the operations that remove tags.
var removes = regexp.MustCompile(`^(Untag|RemoveTags|DeleteTags$|DeleteBucketTagging$)`)

// calls returns the calls of a request, and remembers what the request made.
func (w *world) calls(q request) ([]Call, error) {
	if q.Error != "" {
		return nil, fmt.Errorf("read a request: %s", q.Error)
	}
	prefix := q.Service
	if p, ok := prefixes[prefix]; ok {
		prefix = p
	}
	if prefix == "sts" && q.Operation == "GetCallerIdentity" {
		return nil, nil // needs no permission
	}
	s, err := w.actions.service(prefix)
	if err != nil {
		return nil, err
	}
	name := q.Operation
	if n, ok := names[prefix+":"+name]; ok {
		name = n
	}
	a, ok := s.actions[strings.ToLower(name)]
	if !ok {
		return nil, fmt.Errorf("IAM knows no action %s:%s: add the action of the operation %s to names", prefix, name, q.Operation)
	}
	resources, err := w.resources(s, prefix, a, q)
	if err != nil {
		return nil, err
	}
	requested := requestTags(prefix, q.Params)
	var calls []Call
	for _, r := range resources {
		calls = append(calls, Call{Action: prefix + ":" + a.Name, Resource: r.arn, Context: w.context(s, prefix, a, r, q, requested)})
	}
	if len(requested) > 0 && !tagging.MatchString(q.Operation) {
		tags, err := w.tagCalls(s, prefix, resources, q, requested)
		if err != nil {
			return nil, err
		}
		calls = append(calls, tags...)
	}
	calls = append(calls, w.passes(prefix, q)...)
	if q.Status < 300 {
		w.remember(prefix, resources, q, requested)
	}
	return calls, nil
}

// resources returns the resources that the action names in this request.
func (w *world) resources(s *service, prefix string, a action, q request) ([]used, error) {
	params := leaves("", q.Params)
	var out []used
	add := func(u used) {
		if !slices.ContainsFunc(out, func(o used) bool { return o.arn == u.arn }) {
			out = append(out, u)
		}
	}
	var open []string // required types that the request does not name
	for _, rt := range a.ResourceTypes {
		t, ok := s.types[strings.ToLower(rt.Name)]
		if !ok {
			return nil, fmt.Errorf("%s:%s: IAM describes no resource type %s", prefix, a.Name, rt.Name)
		}
		found := w.find(prefix, t, params)
		for _, arn := range found {
			add(used{typ: rt.Name, arn: arn, fresh: makes.MatchString(q.Operation) && !w.existing[arn] && !w.existing[identifier(arn)]})
		}
		if len(found) > 0 || !rt.Required {
			continue
		}
		if makes.MatchString(q.Operation) { // the service chooses the identifier
			add(used{typ: rt.Name, arn: standard(variable.ReplaceAllStringFunc(t.ARN, func(v string) string {
				if v == "${Partition}" || v == "${Region}" || v == "${Account}" {
					return v
				}
				return "*"
			})), fresh: true})
			continue
		}
		open = append(open, rt.Name)
	}
	if len(out) == 0 && len(open) > 0 && !strings.HasPrefix(q.Operation, "Describe") && !strings.HasPrefix(q.Operation, "List") {
		return nil, fmt.Errorf("%s:%s: the request names no %s: %v", prefix, a.Name, strings.Join(open, ", "), q.Params)
	}
	if len(out) == 0 {
		out = []used{{arn: "*"}}
	}
	return out, nil
}

// find returns the ARNs of resources of a type that the parameters name, by ARN, by
// identifier or by name.
func (w *world) find(prefix string, t resourceType, params []leaf) (out []string) {
	pattern := t.pattern()
	for _, l := range params {
		if strings.HasPrefix(l.value, "arn:") && pattern.MatchString(l.value) {
			out = append(out, l.value)
		}
	}
	if len(out) > 0 {
		return out
	}
	if prefix == "ec2" {
		for _, l := range params {
			if m := ec2ID.FindStringSubmatch(l.value); m != nil && ec2Types[m[1]] == t.Key {
				out = append(out, standard(variable.ReplaceAllStringFunc(t.ARN, func(v string) string {
					if v == "${Partition}" || v == "${Region}" || v == "${Account}" {
						return v
					}
					return l.value
				})))
			}
		}
		return out
	}
	if prefix == "events" && strings.HasPrefix(t.Key, "rule-on-") {
		bus := w.value(prefix, t.Key, "EventBusName", params)
		if onDefault := bus == "" || bus == "default"; onDefault != (t.Key == "rule-on-default-event-bus") {
			return nil
		}
	}
	arn, complete := t.ARN, true
	for _, v := range variable.FindAllStringSubmatch(t.ARN, -1) {
		if v[1] == "Partition" || v[1] == "Region" || v[1] == "Account" {
			continue
		}
		value := w.value(prefix, t.Key, v[1], params)
		if value == "" {
			complete = false
			break
		}
		arn = strings.Replace(arn, v[0], value, 1)
	}
	if !complete || arn == t.ARN && variable.MatchString(arn) {
		return nil
	}
	if name := strings.TrimPrefix(arn, "arn:${Partition}:ssm:${Region}:${Account}:parameter/"); name != arn && strings.HasPrefix(name, "aws/service/") {
		return []string{standard("arn:${Partition}:ssm:${Region}::parameter/" + name)} // AWS's own
	}
	return []string{standard(arn)}
}

// value returns the value of a variable in an ARN; "" if the parameters do not have it.
func (w *world) value(prefix, typ, name string, params []leaf) string {
	keys, ok := fields[prefix+":"+typ+":"+name]
	if !ok {
		keys = []string{name}
	}
	for _, key := range keys {
		if key == "*" {
			return key
		}
		for _, l := range params {
			if !strings.EqualFold(l.key, key) || l.value == "" {
				continue
			}
			value := l.value
			if strings.HasPrefix(value, "http") || strings.HasPrefix(value, "arn:") || prefix == "route53" {
				value = value[strings.LastIndexAny(value, "/:")+1:] // of a queue's URL
			}
			if owner, ok := w.owners[value]; ok {
				value = owner
			}
			if path, ok := w.paths[typ+"/"+value]; ok {
				return strings.TrimPrefix(path, "/") + value
			}
			if strings.HasSuffix(name, "WithPath") {
				for _, p := range params {
					if p.key == "Path" {
						return strings.TrimPrefix(p.value, "/") + value
					}
				}
			}
			if prefix == "ssm" {
				value = strings.TrimPrefix(value, "/")
			}
			return value
		}
	}
	return ""
}

// standard replaces the variables that every ARN has.
func standard(arn string) string {
	return strings.NewReplacer("${Partition}", "aws", "${Region}", region, "${Account}", account).Replace(arn)
}

// identifier returns the last part of an ARN.
func identifier(arn string) string { return arn[strings.LastIndexAny(arn, "/:")+1:] }

// keyOf returns the key of a resource in tags: its identifier if a service chose it, else its
// ARN.
func keyOf(name string) string {
	if id := identifier(name); generated.MatchString(id) {
		return id
	}
	return strings.TrimSuffix(name, ":*") // of a log group
}

// context returns the condition keys of a call.
func (w *world) context(s *service, prefix string, a action, r used, q request, requested map[string]string) map[string]any {
	out := map[string]any{}
	if len(requested) > 0 && s.knows(a, r.typ, "aws:RequestTag") {
		var keys []any
		for _, k := range slices.Sorted(maps.Keys(requested)) {
			out["aws:RequestTag/"+k], keys = requested[k], append(keys, k)
		}
		out["aws:TagKeys"] = keys
	}
	if s.knows(a, r.typ, "aws:ResourceTag") {
		for k, v := range w.tags[keyOf(r.arn)] {
			out["aws:ResourceTag/"+k] = v
		}
	}
	if prefix == "iam" && slices.Contains(a.ConditionKeys, "iam:PermissionsBoundary") {
		if b := w.boundary(q); b != "" {
			out["iam:PermissionsBoundary"] = b
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// boundary returns the boundary that the request gives to its role, or that the role has.
func (w *world) boundary(q request) string {
	if b, _ := q.Params["PermissionsBoundary"].(string); b != "" {
		return b
	}
	name, _ := q.Params["RoleName"].(string)
	return w.boundaries[name]
}

// tagCalls returns the calls of the permission to tag what a request makes.
func (w *world) tagCalls(s *service, prefix string, resources []used, q request, requested map[string]string) (calls []Call, err error) {
	name := tagActions[prefix]
	if prefix == "iam" {
		name = "Tag" + strings.TrimPrefix(q.Operation, "Create")
	}
	a, ok := s.actions[strings.ToLower(name)]
	if !ok {
		return nil, fmt.Errorf("%s:%s has tags, and tagActions has no action for them", prefix, q.Operation)
	}
	if prefix == "kms" && q.Operation == "CreateKey" { // it names no key, and KMS asks for the tags of none
		resources = []used{{typ: "key", arn: standard("arn:${Partition}:kms:${Region}:${Account}:key/*"), fresh: true}}
	}
	for _, r := range resources {
		if !r.fresh || !slices.ContainsFunc(a.ResourceTypes, func(t struct {
			Name          string
			Required      bool
			ConditionKeys []string
		}) bool {
			return t.Name == r.typ
		}) {
			continue
		}
		if prefix == "ec2" && !slices.Contains(tagged(q.Params), r.typ) {
			continue
		}
		context := w.context(s, prefix, a, r, q, requested)
		if context == nil {
			context = map[string]any{}
		}
		key := prefix + ":CreateAction"
		if created := slices.Contains(a.ConditionKeys, key); created {
			context[key] = q.Operation
		}
		if prefix != "ec2" && prefix != "ecs" && prefix != "kms" && s.knows(a, r.typ, "aws:ResourceTag") { // the other services compare the tags of the request
			for k, v := range requested {
				context["aws:ResourceTag/"+k] = v
			}
		}
		calls = append(calls, Call{Action: prefix + ":" + a.Name, Resource: r.arn, Context: context})
	}
	return calls, nil
}

// passes returns a call of iam:PassRole for each role that the request gives to a service.
func (w *world) passes(prefix string, q request) (calls []Call) {
	if prefix == "iam" && q.Operation == "AddRoleToInstanceProfile" {
		name, _ := q.Params["RoleName"].(string)
		return []Call{{Action: "iam:PassRole", Resource: w.role(name), Context: map[string]any{"iam:PassedToService": receivers["ec2"]}}}
	}
	service, ok := receivers[prefix]
	if !ok || !makes.MatchString(q.Operation) && !strings.HasPrefix(q.Operation, "Update") {
		return nil
	}
	add := func(arn string) {
		c := Call{Action: "iam:PassRole", Resource: arn, Context: map[string]any{"iam:PassedToService": service}}
		if !slices.ContainsFunc(calls, c.equal) {
			calls = append(calls, c)
		}
	}
	for _, l := range leaves("", q.Params) {
		if role := regexp.MustCompile(`^arn:aws:iam::\d+:role/`); role.MatchString(l.value) {
			add(l.value)
		}
	}
	if q.Operation == "RunInstances" {
		for _, l := range leaves("", q.Params["IamInstanceProfile"]) {
			if role, ok := w.profiles[identifier(l.value)]; ok {
				add(w.role(role))
			}
		}
	}
	return calls
}

// role returns the ARN of a role that a request made.
func (w *world) role(name string) string {
	return "arn:aws:iam::" + account + ":role/" + strings.TrimPrefix(w.paths["role/"+name], "/") + name
}

// generated matches identifiers that a service chooses.
var generated = regexp.MustCompile(`^([a-z]+-[0-9a-f]{8,}|[0-9a-f]{8}-[0-9a-f-]{27})$`)

// remember keeps what a request made or tagged.
func (w *world) remember(prefix string, resources []used, q request, requested map[string]string) {
	text := func(name string) string { s, _ := q.Params[name].(string); return s }
	switch prefix + ":" + q.Operation {
	case "iam:CreateRole":
		w.paths["role/"+text("RoleName")], w.boundaries[text("RoleName")] = text("Path"), text("PermissionsBoundary")
	case "iam:CreatePolicy":
		w.paths["policy/"+text("PolicyName")] = text("Path")
	case "iam:CreateInstanceProfile":
		w.paths["instance-profile/"+text("InstanceProfileName")] = text("Path")
	case "iam:AddRoleToInstanceProfile":
		w.profiles[text("InstanceProfileName")] = text("RoleName")
	case "elasticfilesystem:CreateMountTarget":
		if id, _ := q.Output["MountTargetId"].(string); id != "" {
			w.owners[id] = text("FileSystemId")
		}
	case "iam:PutRolePermissionsBoundary":
		w.boundaries[text("RoleName")] = text("PermissionsBoundary")
	}
	set := func(name string, tags map[string]string) {
		name = keyOf(name)
		if w.tags[name] == nil {
			w.tags[name] = map[string]string{}
		}
		maps.Copy(w.tags[name], tags)
	}
	if tagging.MatchString(q.Operation) {
		for _, r := range resources {
			if removes.MatchString(q.Operation) {
				for key := range requested {
					delete(w.tags[keyOf(r.arn)], key)
				}
			} else {
				set(r.arn, requested)
			}
			for _, l := range leaves("", q.Params) {
				if strings.EqualFold(l.key, "TagKeys") {
					delete(w.tags[keyOf(r.arn)], l.value)
				}
			}
		}
	}
	var made []string
	for _, r := range resources {
		if r.fresh && !strings.HasSuffix(r.arn, "*") {
			made = append(made, r.arn)
		}
	}
	for _, l := range leaves("", q.Output) {
		if !w.existing[l.value] && makes.MatchString(q.Operation) && (strings.HasPrefix(l.value, "arn:") || generated.MatchString(l.value)) {
			if m := ec2ID.FindStringSubmatch(l.value); prefix == "ec2" && (m == nil || !slices.Contains(tagged(q.Params), ec2Types[m[1]])) {
				continue
			}
			made = append(made, l.value)
		}
	}
	for _, name := range made {
		if len(requested) > 0 && !tagging.MatchString(q.Operation) {
			set(name, requested)
		}
	}
	for _, l := range append(leaves("", q.Params), leaves("", q.Output)...) {
		w.existing[l.value] = true
	}
	for _, r := range resources {
		w.existing[r.arn] = true
	}
}

// tagged returns the types of resources that a request of EC2 makes with tags.
func tagged(params map[string]any) (types []string) {
	list, _ := params["TagSpecifications"].([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			if typ, _ := m["ResourceType"].(string); typ != "" {
				types = append(types, typ)
			}
		}
	}
	return types
}

// requestTags returns the tags in a request.
func requestTags(prefix string, params map[string]any) map[string]string {
	out := map[string]string{}
	read := func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, value := range v {
				if s, ok := value.(string); ok {
					out[k] = s
				}
			}
		case []any:
			for _, e := range v {
				pair, _ := e.(map[string]any)
				var key, value string
				for _, l := range leaves("", pair) {
					switch strings.ToLower(l.key) {
					case "key", "tagkey":
						key = l.value
					case "value", "tagvalue":
						value = l.value
					}
				}
				if key != "" {
					out[key] = value
				}
			}
		}
	}
	for name, v := range params {
		switch strings.ToLower(name) {
		case "tags", "tag", "taglist", "addtags":
			read(v)
		case "tagspecifications":
			list, _ := v.([]any)
			for _, e := range list {
				if m, ok := e.(map[string]any); ok && prefix == "ec2" {
					read(m["Tags"])
				}
			}
		case "tagging", "createbucketconfiguration":
			if m, ok := v.(map[string]any); ok {
				read(m["TagSet"])
				read(m["Tags"])
			}
		}
	}
	return out
}
