package importer

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Humanitec imports a runner of Humanitec's Platform Orchestrator. Src is its YAML or
// JSON file, the response of its API, or the attributes of its Terraform resource.
// Settings have the form of runnerspec.Parse.
func Humanitec(file string, src []byte, settings []string) Result {
	h := &humanitec{newImporter(file, settings)}
	read := yamlnode.Read
	if json.Valid(src) {
		read = yamlnode.ReadJSON
	}
	root, problems := read(src)
	for _, p := range problems {
		p.File = file
		h.problems = append(h.problems, p)
	}
	if len(h.problems) > 0 {
		return h.result()
	}
	fields := h.fields("", "file")
	fields[runnerPart], fields[storagePart] = h.runner, h.storage
	h.object(root, "", fields)
	h.bucketRegion()
	return h.result()
}

type humanitec struct{ *importer }

//go:embed humanitec.table
var humanitecTable string

// fields returns the handlers of a part of a file for the kind.
func (h *humanitec) fields(part, kind string) handlers {
	of := slices.DeleteFunc(rowsOf(humanitecTable), func(r row) bool { return !slices.Contains(r.of, kind) })
	return h.nested(part, of, map[string]func(string) handler{
		"name": func(string) handler { return h.name }, "template": func(string) handler { return h.podTemplate },
		"secret": h.secret, "prefix": h.prefix,
		"image": func(to string) handler { return h.image(to, "Humanitec", theirRunner) },
	})
}

// kindsOfHumanitec maps Humanitec's types of runners to Fairlead's kinds.
func kindsOfHumanitec() map[string]runnerspec.Kind {
	return map[string]runnerspec.Kind{
		"kubernetes": runnerspec.Kubernetes, "kubernetes-gke": runnerspec.GCPGKE, "kubernetes-eks": runnerspec.AWSEKS,
		"kubernetes-agent": runnerspec.Kubernetes, "serverless-ecs": runnerspec.AWSECS,
	}
}

// theirType returns the type of a part and its place. If the type is missing or
// unknown, it adds a problem and returns "".
func (h *humanitec) theirType(n yamlnode.Node, where string, known []string) (string, yamlnode.Place) {
	t, ok := n.Child("type")
	if !ok {
		h.problem(n.Place, "missing-field", where+` lacks the field "type"`, "The types are: "+strings.Join(known, ", ")+".")
		return "", n.Place
	}
	s, ok := t.Value.(string)
	if !ok || !slices.Contains(known, s) {
		h.problem(t.Place, "unknown-type", fmt.Sprintf("%s.type is not a type of Humanitec", where), yamlnode.DidYouMean(s, "types", known))
		return "", t.Place
	}
	return s, t.Place
}

// withType adds a missing type. Terraform has the type in the name of the resource, not
// in an attribute, so withType infers it from fields that only one type has.
func (h *humanitec) withType(n yamlnode.Node, where string) yamlnode.Node {
	field := func(path ...string) bool {
		at := n
		for _, name := range path {
			at, _ = at.Child(name)
		}
		return !at.IsNull()
	}
	if field("type") {
		return n
	}
	theirs := ""
	for _, only := range []struct {
		theirs string
		fields [][]string
	}{
		{"kubernetes-agent", [][]string{{"key"}}}, {"kubernetes", [][]string{{"cluster", "cluster_data"}}}, {"kubernetes-gke", [][]string{{"cluster", "project_id"}}},
		{"kubernetes-eks", [][]string{{"cluster", "region"}}}, {"serverless-ecs", [][]string{{"auth"}, {"job", "subnets"}}},
	} {
		if theirs == "" && !slices.ContainsFunc(only.fields, func(path []string) bool { return !field(path...) }) {
			theirs = only.theirs
		}
	}
	if theirs == "" {
		return n
	}
	h.note(n.Place, Changed, where, runnerPart+".type", "Terraform's attributes have no type; only "+theirs+" has these fields")
	n.Fields = append([]yamlnode.Field{{Place: n.Place, Key: "type", Value: text(n.Place, theirs)}}, n.Fields...)
	return n
}

func (h *humanitec) runner(n yamlnode.Node, where string) {
	n = h.withType(n, where)
	theirs, at := h.theirType(n, where, slices.Sorted(maps.Keys(kindsOfHumanitec())))
	if theirs == "" {
		return
	}
	ours := kindsOfHumanitec()[theirs]
	fate := Changed
	if theirs == string(ours) {
		fate = Mapped
	}
	h.put(runnerPart+".type", text(at, string(ours)))
	h.note(at, fate, where+".type", runnerPart+".type", map[Fate]string{Changed: fmt.Sprintf("%s is %s in Fairlead", theirs, ours)}[fate])
	fields := h.fields(runnerPart, theirs)
	fields["type"] = handledElsewhere
	h.object(n, where, fields)
}

// handledElsewhere is the handler of fields that other code imports. It does nothing.
func handledElsewhere(yamlnode.Node, string) {}

// secret copies a secret value. Humanitec's API returns "SECRET" instead of the value, so
// secret reports "SECRET" as a problem.
func (h *humanitec) secret(to string) handler {
	return func(n yamlnode.Node, where string) {
		if n.Value == "SECRET" {
			h.problem(n.Place, "masked-secret", where+" is Humanitec's placeholder and not the secret itself",
				"Write the secret there, or remove "+clusterPart+" and install the agent in the cluster: the agent then needs no credentials.")
			return
		}
		h.with(Mapped, to, "it is a secret: keep the file where only you can read it")(n, where)
	}
}

// theirRunner reports whether the repository has a name of the image of Humanitec's
// runner, current or former.
func theirRunner(repository string) bool {
	return slices.Contains([]string{"canyon-runner", "humanitec-runner", "platform-orchestrator-runner"}, path.Base(repository))
}

func (h *humanitec) storage(n yamlnode.Node, where string) {
	all := []string{"azurerm", "gcs", "kubernetes", "s3"}
	theirs, at := h.theirType(n, where, all)
	if theirs == "" {
		return
	}
	h.put(storagePart+".type", text(at, theirs))
	h.note(at, Changed, where+".type", storagePart+".type", "Fairlead uses other names for states, so it does not find existing states: an install starts without state")
	fields := h.fields(storagePart, "storage-"+theirs)
	// Terraform has the fields in a block with the name of the type.
	for _, block := range all {
		inner := h.fields(storagePart, "storage-"+theirs)
		fields[block+"_configuration"] = func(n yamlnode.Node, where string) {
			if block == theirs {
				h.object(n, where, inner)
				return
			}
			h.problem(n.Place, "excluded", fmt.Sprintf("%s does not belong to a state storage of type %s", where, theirs), "Remove it.")
		}
	}
	fields["type"] = handledElsewhere
	h.object(n, where, fields)
}

func (h *humanitec) prefix(to string) handler {
	return func(n yamlnode.Node, where string) {
		s, _ := n.Value.(string)
		trimmed := strings.Trim(s, "/")
		switch {
		case s == "" || trimmed == s:
			h.same(to)(n, where)
		case trimmed == "":
			h.drop("a prefix has no slashes at its ends in Fairlead, and without them it is empty")(n, where)
		default:
			h.put(to, text(n.Place, trimmed))
			h.note(n.Place, Changed, where, to, "a prefix has no slashes at its ends in Fairlead")
		}
	}
}

// bucketRegion sets the region of the bucket to the region of the jobs or the cluster.
// Humanitec's configuration has no region for a bucket.
func (h *humanitec) bucketRegion() {
	const field = storagePart + ".region"
	if t, ok := h.get(storagePart + ".type"); !ok || t.Value != "s3" || h.given(field) {
		return
	}
	for _, from := range []string{jobPart + ".region", clusterPart + ".region"} {
		if n, ok := h.get(from); ok {
			h.put(field, n)
			h.note(n.Place, Changed, from, field, "assumed: the bucket is in the region of the jobs. --set "+field+"=… sets another")
			return
		}
	}
	if n, ok := h.get(storagePart); ok {
		h.problem(n.Place, "missing-field", "the file has no region for the bucket, and "+storagePart+" needs one", "Add --set "+field+"=REGION.")
	}
}
