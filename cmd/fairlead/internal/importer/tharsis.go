package importer

import (
	_ "embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Tharsis imports the environment file of a Tharsis runner. It accepts the names of
// Tharsis' documentation and those of newer versions. Settings have the form of
// runnerspec.Parse.
func Tharsis(file string, src []byte, settings []string) Result {
	th := &tharsis{importer: newImporter(file, settings), of: map[string]variable{}}
	all := th.variables(src)
	for _, v := range all {
		th.of[v.name] = v
	}
	if len(all) == 0 && len(th.problems) == 0 {
		th.problem(yamlnode.Place{Line: 1, Column: 1}, "empty-file", "the file has no variables", "Give the file that the runner is started with.")
	}
	th.dispatcher()
	known := th.known()
	for _, v := range all {
		handle, ok := known[v.name]
		switch {
		case ok && v.value != "":
			handle(text(v.Place, v.value), v.name)
		case ok:
			th.note(v.Place, Dropped, v.name, "", "the value is empty")
		case strings.HasPrefix(v.name, prefix):
			th.problem(v.Place, "unknown-variable", "Tharsis has no variable "+yamlnode.Printable(v.name), nearest(v.name, slices.Sorted(maps.Keys(known))))
		default:
			th.note(v.Place, Dropped, v.name, "", "it is not a variable of Tharsis; if the agent needs it, set it in the agent's environment")
		}
	}
	if len(th.problems) == 0 {
		// The state storage has no line of its own: its note gets the first line.
		at := all[0].Place
		th.put(storagePart+".type", text(at, string(runnerspec.HTTPState)))
		th.note(at, Changed, "Tharsis' state storage", storagePart+".type", "the control plane stores the states; existing states are not moved. --set "+storagePart+"=… sets another storage")
	}
	return th.result()
}

type tharsis struct {
	*importer
	of   map[string]variable
	kind runnerspec.Kind // "" if the file names none
	auth string          // how the runner authenticates to Kubernetes
}

// Names and prefixes of Tharsis' variables.
const (
	prefix     = "THARSIS_"
	dispatcher = prefix + "JOB_DISPATCHER_TYPE"
	data       = prefix + "JOB_DISPATCHER_DATA_"
)

// nearest returns a hint with the known name that is most similar. It compares the
// names without their common prefix, which makes all names similar.
func nearest(name string, known []string) string {
	var rest []string
	for _, k := range known {
		rest = append(rest, strings.TrimPrefix(k, prefix))
	}
	if n := yamlnode.Nearest(strings.TrimPrefix(name, prefix), rest); n != "" {
		if !slices.Contains(known, n) {
			n = prefix + n
		}
		return fmt.Sprintf("Did you mean %q?", n)
	}
	return ""
}

// dispatcher sets the kind of the runner. The meaning of other variables depends on it.
func (th *tharsis) dispatcher() {
	v, ok := th.of[dispatcher]
	if !ok {
		if len(th.problems) == 0 {
			th.problem(yamlnode.Place{Line: 1, Column: 1}, "missing-variable", "the file does not set "+dispatcher, "Set it to ecs, kubernetes, docker or local.")
		}
		return
	}
	auths := []string{"eks_iam", "in_cluster", "kube_config", "runner_id_token", "x509_cert"}
	kinds := map[string]runnerspec.Kind{"ecs": runnerspec.AWSECS, "kubernetes": runnerspec.Kubernetes, "docker": runnerspec.Docker, "local": runnerspec.Local}
	if th.kind, ok = kinds[v.value]; !ok {
		th.problem(v.Place, "unknown-type", dispatcher+" is not a type of dispatcher", yamlnode.DidYouMean(v.value, "types", slices.Sorted(maps.Keys(kinds))))
		return
	}
	if a := th.of[data+"AUTH_TYPE"]; th.kind == runnerspec.Kubernetes {
		if th.auth = a.value; a.value != "" && !slices.Contains(auths, a.value) {
			th.problem(a.Place, "unknown-type", data+"AUTH_TYPE is not a type of Tharsis", yamlnode.DidYouMean(a.value, "types", auths))
		}
		if th.auth == "eks_iam" {
			th.kind = runnerspec.AWSEKS
		}
	}
	why := ""
	if string(th.kind) != v.value {
		why = fmt.Sprintf("%s is %s in Fairlead", v.value, th.kind)
	}
	fate := Changed
	if why == "" {
		fate = Mapped
	}
	th.put(runnerPart+".type", text(v.Place, string(th.kind)))
	th.note(v.Place, fate, dispatcher, runnerPart+".type", why)
}

//go:embed tharsis.table
var tharsisTable string

// known returns the handlers of all variables of Tharsis, by name.
func (th *tharsis) known() handlers {
	is := []string{"*", string(th.kind)}
	for condition, holds := range map[string]bool{"x509": th.auth == "x509_cert", "eks-role": th.auth == "eks_iam" && th.given(clusterPart), "iam": th.iamHelper()} {
		if holds {
			is = append(is, condition)
		}
	}
	altered := func(fate Fate, r row) handler {
		return func(n yamlnode.Node, where string) { th.note(n.Place, fate, where, runnerPart+"."+r.to, r.why) }
	}
	all := handlers{dispatcher: handledElsewhere}
	unused := th.drop(fmt.Sprintf("a runner of kind %s does not use it", th.kind))
	chosen := map[string]bool{} // variables whose first applicable row was found
	for _, r := range rowsOf(strings.NewReplacer("DATA_", data, "STEP_CONTAINER", runnerspec.StepContainer).Replace(tharsisTable)) {
		switch {
		case chosen[r.from]:
		case !slices.ContainsFunc(r.of, func(s string) bool { return slices.Contains(is, s) }):
			all[r.from] = unused
		default:
			chosen[r.from] = true
			all[r.from] = th.handle(runnerPart, r, map[string]func(string) handler{
				"path": func(string) handler { return th.path }, "arguments": func(string) handler { return th.helperArguments },
				"list": th.items, "pairs": th.pairs, "local-image": th.localImage,
				"image": func(to string) handler {
					return th.image(to, "Tharsis", func(r string) bool { return strings.Contains(r, "tharsis") })
				},
				"noted":   func(string) handler { return altered(Mapped, r) },
				"altered": func(string) handler { return altered(Changed, r) },
			})
		}
	}
	return all
}

// items imports a list of the form a,b,c.
func (th *tharsis) items(to string) handler {
	return func(n yamlnode.Node, where string) {
		th.put(to, list(n.Place, commas(n.Value.(string))...))
		th.note(n.Place, Mapped, where, to, "")
	}
}

func (th *tharsis) localImage(to string) handler {
	return func(n yamlnode.Node, where string) {
		if !slices.Contains([]string{"true", "1", "t", "yes"}, strings.ToLower(n.Value.(string))) {
			th.note(n.Place, Dropped, where, to, "Fairlead pulls an image if it is not on the machine")
			return
		}
		th.put(to, text(n.Place, "Never"))
		th.note(n.Place, Changed, where, to, "Fairlead never pulls the image, so it must be on the machine")
	}
}

// pairs imports a map of the form a=b,c=d or a:b,c:d.
func (th *tharsis) pairs(to string) handler {
	return func(n yamlnode.Node, where string) {
		m := yamlnode.Node{Place: n.Place, Shape: yamlnode.Map}
		for _, item := range commas(n.Value.(string)) {
			k, v, ok := strings.Cut(item, "=")
			if !ok {
				k, v, ok = strings.Cut(item, ":")
			}
			if k = strings.TrimSpace(k); !ok || k == "" {
				th.problem(n.Place, "invalid-value", where+" is not a list of name=value, separated by commas", "")
				return
			}
			m.Fields = append(m.Fields, yamlnode.Field{Place: n.Place, Key: k, Value: text(n.Place, strings.TrimSpace(v))})
		}
		th.put(to, m)
		th.note(n.Place, Mapped, where, to, "")
	}
}

// path sets the name and the group of the runner. An identifier (trn:...) of Tharsis
// ends with the path. A global identifier has no path and is dropped.
func (th *tharsis) path(n yamlnode.Node, where string) {
	s := n.Value.(string)
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.HasPrefix(s, "trn:") {
		s = s[i+1:]
	} else if where == prefix+"RUNNER_ID" && !strings.Contains(s, "/") {
		th.note(n.Place, Dropped, where, "id", "it has neither name nor group; give the name to `fairlead runner create`, and the group with --set group=…")
		return
	}
	group, last := path.Split(strings.Trim(s, "/"))
	th.name(text(n.Place, last), where)
	if group = strings.Trim(group, "/"); group != "" {
		fixed := strings.ToLower(strings.ReplaceAll(group, "_", "-"))
		fate := Mapped
		if fixed != group {
			fate = Changed
		}
		th.put("group", text(n.Place, fixed))
		th.note(n.Place, fate, where, "group", "create the group first: fairlead group create "+fixed)
	}
}

// iamHelper reports whether the runner's credential helper proves an AWS role.
func (th *tharsis) iamHelper() bool {
	return strings.HasPrefix(path.Base(th.of[prefix+"CREDENTIAL_HELPER_CMD_PATH"].value), "iamoidc")
}

// helperArguments imports -region, -endpoint and -aud. The helper needs them for a
// token of Tharsis' issuer.
func (th *tharsis) helperArguments(n yamlnode.Node, where string) {
	whys := map[string]string{
		"region":   "set AWS_REGION in the environment of the agent",
		"endpoint": "it is the issuer that Tharsis trusts; an agent with a role needs no token",
		"aud":      "it is the audience of Tharsis' token; an agent with a role needs no token",
	}
	names, ok := arguments(n.Value.(string))
	if !ok {
		th.problem(n.Place, "invalid-value", where+" is not a list of -name=value", "The helper's arguments are -region, -endpoint and -aud.")
		return
	}
	for _, name := range names {
		why, known := whys[name]
		if !known {
			th.problem(n.Place, "unknown-argument", fmt.Sprintf("%s: the helper has no argument -%s", where, yamlnode.Printable(name)),
				yamlnode.DidYouMean(name, "arguments", slices.Sorted(maps.Keys(whys))))
			continue
		}
		th.drop(why)(n, where+" -"+name)
	}
}
