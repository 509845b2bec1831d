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

// Humanitec reads the file of a runner of Humanitec's Platform Orchestrator,
// YAML or JSON, what its API answers, and the attributes of its Terraform
// resources. The settings are as for runnerspec.Parse.
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

// fields are the handlers of what a file, or a part of one, has that is of the kind.
func (h *humanitec) fields(part, kind string) handlers {
	of := slices.DeleteFunc(rowsOf(humanitecTable), func(r row) bool { return !slices.Contains(r.of, kind) })
	return h.nested(part, of, map[string]func(string) handler{
		"name": func(string) handler { return h.name }, "template": func(string) handler { return h.podTemplate },
		"secret": h.secret, "prefix": h.prefix,
		"image": func(to string) handler { return h.image(to, "Humanitec", theirRunner) },
	})
}

// kindsOfHumanitec are their types of runners and ours.
func kindsOfHumanitec() map[string]runnerspec.Kind {
	return map[string]runnerspec.Kind{
		"kubernetes": runnerspec.Kubernetes, "kubernetes-gke": runnerspec.GCPGKE, "kubernetes-eks": runnerspec.AWSEKS,
		"kubernetes-agent": runnerspec.Kubernetes, "serverless-ecs": runnerspec.AWSECS,
	}
}

// theirType returns the type that a part names, one of the known, or "".
func (h *humanitec) theirType(n yamlnode.Node, where string, known []string) (string, yamlnode.Place) {
	t, ok := n.Child("type")
	if !ok {
		h.problem(n.Place, "missing-field", where+` lacks the field "type"`, "The types are: "+strings.Join(known, ", ")+".")
		return "", n.Place
	}
	s, ok := t.Value.(string)
	if !ok || !slices.Contains(known, s) {
		h.problem(t.Place, "unknown-type", fmt.Sprintf("%s.type is none of Humanitec's", where), yamlnode.DidYouMean(s, "types", known))
		return "", t.Place
	}
	return s, t.Place
}

// withType adds the type that Terraform's form has in the name of the resource:
// what only one type has tells it.
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
	h.note(n.Place, Changed, where, runnerPart+".type", "Terraform's form has no type; these fields are those of "+theirs)
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
	h.note(at, fate, where+".type", runnerPart+".type", map[Fate]string{Changed: fmt.Sprintf("%s is %s here", theirs, ours)}[fate])
	fields := h.fields(runnerPart, theirs)
	fields["type"] = handledElsewhere
	h.object(n, where, fields)
}

// handledElsewhere is the handler of what is handled elsewhere.
func handledElsewhere(yamlnode.Node, string) {}

// secret moves a value that is secret. What Humanitec shows instead of one is
// not one.
func (h *humanitec) secret(to string) handler {
	return func(n yamlnode.Node, where string) {
		if n.Value == "SECRET" {
			h.problem(n.Place, "masked-secret", where+" is what Humanitec shows instead of the secret",
				"Write the secret there, or remove "+clusterPart+" and install the agent in the cluster: it then needs none.")
			return
		}
		h.with(Mapped, to, "it is secret: keep the file where only you can read it")(n, where)
	}
}

// theirRunner reports whether the repository is one of the names that the
// image of Humanitec's runner has had.
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
	h.note(at, Changed, where+".type", storagePart+".type", "states are kept under other names here, so those that are there are not found: an install begins without one")
	fields := h.fields(storagePart, "storage-"+theirs)
	// Terraform's form has the fields in a block of the type's name.
	for _, block := range all {
		inner := h.fields(storagePart, "storage-"+theirs)
		fields[block+"_configuration"] = func(n yamlnode.Node, where string) {
			if block == theirs {
				h.object(n, where, inner)
				return
			}
			h.problem(n.Place, "excluded", fmt.Sprintf("%s is not of a state storage of type %s", where, theirs), "Remove it.")
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
			h.drop("a prefix has no slashes at its ends here, and nothing is left of it")(n, where)
		default:
			h.put(to, text(n.Place, trimmed))
			h.note(n.Place, Changed, where, to, "without the slashes at its ends")
		}
	}
}

// bucketRegion finds the region of a bucket, which Humanitec does not ask for.
func (h *humanitec) bucketRegion() {
	const field = storagePart + ".region"
	if t, ok := h.get(storagePart + ".type"); !ok || t.Value != "s3" || h.given(field) {
		return
	}
	for _, from := range []string{jobPart + ".region", clusterPart + ".region"} {
		if n, ok := h.get(from); ok {
			h.put(field, n)
			h.note(n.Place, Changed, from, field, "the bucket is taken to be in the region of the jobs; --set "+field+"=… says otherwise")
			return
		}
	}
	if n, ok := h.get(storagePart); ok {
		h.problem(n.Place, "missing-field", "Humanitec does not say in which region a bucket is, and "+storagePart+" needs it", "Add --set "+field+"=REGION.")
	}
}
