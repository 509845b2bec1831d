package importer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// Tharsis reads the environment file of a Tharsis runner, with the names that
// its documentation has and those that its newer versions have. The settings
// are as for runnerspec.Parse.
func Tharsis(file string, src []byte, settings []string) Result {
	th := &tharsis{importer: newImporter(file, settings), of: map[string]variable{}}
	all := th.variables(src)
	for _, v := range all {
		th.of[v.name] = v
	}
	if len(all) == 0 && len(th.problems) == 0 {
		th.problem(yamldoc.Place{Line: 1, Column: 1}, "empty-file", "the file has no variables", "Give the file that the runner is started with.")
	}
	th.dispatcher()
	known := th.known()
	for _, v := range all {
		handle, ok := known[v.name]
		switch {
		case ok && v.value != "":
			handle(text(v.Place, v.value), v.name)
		case ok:
			th.note(v.Place, Dropped, v.name, "", "it is empty")
		case strings.HasPrefix(v.name, prefix):
			th.problem(v.Place, "unknown-variable", "Tharsis has no variable "+yamldoc.Printable(v.name), nearest(v.name, slices.Sorted(maps.Keys(known))))
		default:
			th.note(v.Place, Dropped, v.name, "", "it is not Tharsis'; what the agent itself needs belongs into its environment")
		}
	}
	if len(th.problems) == 0 {
		// What no line says stands at the first.
		at := all[0].Place
		th.put(storagePart+".type", text(at, string(runnerspec.HTTPState)))
		th.note(at, Changed, "Tharsis' own storage of states", storagePart+".type", "the control plane keeps them; states that are there are not moved. --set "+storagePart+"=… names another place")
	}
	return th.result()
}

type tharsis struct {
	*importer
	of   map[string]variable
	kind runnerspec.Kind // "" if the file does not say one
	auth string          // how Kubernetes is reached
}

// The beginnings of Tharsis' variables.
const (
	prefix     = "THARSIS_"
	dispatcher = prefix + "JOB_DISPATCHER_TYPE"
	data       = prefix + "JOB_DISPATCHER_DATA_"
)

// nearest tells the name that was probably meant. All of them begin alike, which
// would make any two of them near.
func nearest(name string, known []string) string {
	var rest []string
	for _, k := range known {
		rest = append(rest, strings.TrimPrefix(k, prefix))
	}
	if n := yamldoc.Nearest(strings.TrimPrefix(name, prefix), rest); n != "" {
		if !slices.Contains(known, n) {
			n = prefix + n
		}
		return fmt.Sprintf("Did you mean %q?", n)
	}
	return ""
}

// dispatcher finds out what kind of runner it is: what a variable means depends
// on it.
func (th *tharsis) dispatcher() {
	v, ok := th.of[dispatcher]
	if !ok {
		if len(th.problems) == 0 {
			th.problem(yamldoc.Place{Line: 1, Column: 1}, "missing-variable", "the file does not say "+dispatcher, "It is ecs, kubernetes, docker or local.")
		}
		return
	}
	auths := []string{"eks_iam", "in_cluster", "kube_config", "runner_id_token", "x509_cert"}
	kinds := map[string]runnerspec.Kind{"ecs": runnerspec.AWSECS, "kubernetes": runnerspec.Kubernetes, "docker": runnerspec.Docker, "local": runnerspec.Local}
	if th.kind, ok = kinds[v.value]; !ok {
		th.problem(v.Place, "unknown-type", dispatcher+" is no type of a dispatcher", yamldoc.DidYouMean(v.value, "types", slices.Sorted(maps.Keys(kinds))))
		return
	}
	if a := th.of[data+"AUTH_TYPE"]; th.kind == runnerspec.Kubernetes {
		if th.auth = a.value; a.value != "" && !slices.Contains(auths, a.value) {
			th.problem(a.Place, "unknown-type", data+"AUTH_TYPE is none that Tharsis knows", yamldoc.DidYouMean(a.value, "types", auths))
		}
		if th.auth == "eks_iam" {
			th.kind = runnerspec.AWSEKS
		}
	}
	why := ""
	if string(th.kind) != v.value {
		why = fmt.Sprintf("%s is %s here", v.value, th.kind)
	}
	fate := Changed
	if why == "" {
		fate = Mapped
	}
	th.put(runnerPart+".type", text(v.Place, string(th.kind)))
	th.note(v.Place, fate, dispatcher, runnerPart+".type", why)
}

// known are all variables that Tharsis has, and what becomes of each.
func (th *tharsis) known() handlers {
	nothing := func(yamldoc.Node, string) {} // said elsewhere
	theirs := th.drop("it is Tharsis' own address; the agent is told this control plane's when it is started, and jobs get it from the agent. --set " +
		runnerPart + ".endpoint=URL gives jobs another")
	tls := th.drop("a certificate is always verified; SSL_CERT_FILE names further authorities to the agent")
	authorities := th.drop("it names authorities of TLS; the agent reads it, too: set it in the environment of the agent")
	all := handlers{
		prefix + "RUNNER_PATH": th.path, prefix + "RUNNER_ID": th.path,
		prefix + "SERVICE_ACCOUNT_PATH": th.serviceAccount, prefix + "SERVICE_ACCOUNT_ID": th.serviceAccount,
		prefix + "API_URL": theirs, prefix + "ENDPOINT": theirs, prefix + "SERVICE_DISCOVERY_HOST": theirs,
		prefix + "CREDENTIAL_HELPER_CMD_PATH": th.helper, prefix + "CREDENTIAL_HELPER_CMD_ARGS": th.helperArguments,
		prefix + "TLS_SKIP_VERIFY": tls, "TLS_SKIP_VERIFY": tls, "SSL_CERT_FILE": authorities, "SSL_CERT_DIR": authorities,
		dispatcher:       nothing,
		data + "API_URL": theirs, data + "ENDPOINT": theirs, data + "EXTRA_SERVICE_DISCOVERY_HOSTS": theirs,
		"DISCOVERY_PROTOCOL_HOST": theirs, "DISCOVERY_PROTOCOL_HOSTS": theirs,
		data + "DISCOVERY_PROTOCOL_HOST": theirs, data + "DISCOVERY_PROTOCOL_HOSTS": theirs,
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		to := th.with(Mapped, jobPart+".proxy."+strings.ToLower(name), "set it in the environment of the agent, too")
		all[name], all[strings.ToLower(name)] = to, to
	}
	all[data+"TLS_SKIP_VERIFY"] = tls // of its kubernetes, docker and local dispatchers
	used := th.ofDispatcher()
	for _, name := range strings.Fields("TASK_DEFINITION REGION CLUSTER SUBNETS LAUNCH_TYPE " +
		"AUTH_TYPE IMAGE MEMORY_REQUEST MEMORY_LIMIT CPU_REQUEST CPU_LIMIT NAMESPACE EKS_CLUSTER KUBE_CONFIG_PATH KUBE_SERVER CLIENT_CERT CLIENT_KEY CA_CERT " +
		"SECURITY_CONTEXT_RUN_AS_USER SECURITY_CONTEXT_RUN_AS_GROUP SECURITY_CONTEXT_RUN_AS_NON_ROOT NODE_SELECTOR HOST_ALIASES POD_ANNOTATIONS POD_LABELS " +
		"HOST LOCAL_IMAGE EXTRA_HOSTS BIND_PATH REGISTRY_USERNAME REGISTRY_PASSWORD") {
		if all[data+name] = used[name]; used[name] == nil {
			all[data+name] = th.drop(fmt.Sprintf("a runner of kind %s does not use it", th.kind))
		}
	}
	return all
}

// ofDispatcher are the variables that the dispatcher of this runner uses.
func (th *tharsis) ofDispatcher() handlers {
	to := func(name string) func(yamldoc.Node, string) { return th.same(jobPart + "." + name) }
	items := func(name string) func(yamldoc.Node, string) {
		return func(n yamldoc.Node, where string) {
			th.put(jobPart+"."+name, list(n.Place, commas(n.Value.(string))...))
			th.note(n.Place, Mapped, where, jobPart+"."+name, "")
		}
	}
	image := th.image(jobPart+".image", "Tharsis", func(r string) bool { return strings.Contains(r, "tharsis") })
	switch th.kind {
	case runnerspec.AWSECS:
		return handlers{
			"TASK_DEFINITION": th.with(Changed, jobPart+".task_definition",
				"let it run Fairlead's runner, in a container that is called "+runnerspec.StepContainer+" and not main"),
			"REGION": to("region"), "CLUSTER": to("cluster"), "SUBNETS": items("subnets"), "LAUNCH_TYPE": to("launch_type"),
		}
	case runnerspec.AWSEKS, runnerspec.Kubernetes:
		h := handlers{
			"AUTH_TYPE": th.authType, "IMAGE": image, "NAMESPACE": to("namespace"), "NODE_SELECTOR": th.pairs(jobPart + ".node_selector"),
			"MEMORY_REQUEST": to("memory_request"), "MEMORY_LIMIT": to("memory_limit"), "CPU_REQUEST": to("cpu_request"), "CPU_LIMIT": to("cpu_limit"),
			"POD_LABELS": th.pairs(jobPart + ".labels"), "POD_ANNOTATIONS": th.pairs(templatePart + ".metadata.annotations"),
			"HOST_ALIASES": th.drop("write them as hostAliases of " + templatePart + ".spec"),
		}
		for _, name := range []string{"USER", "GROUP", "NON_ROOT"} {
			h["SECURITY_CONTEXT_RUN_AS_"+name] = th.drop("the pod of a job is never root: its user is 65532, that of the runner's image")
		}
		maps.Copy(h, th.cluster())
		return h
	case runnerspec.Docker:
		return handlers{
			"HOST": th.same(runnerPart + ".host"), "IMAGE": image, "LOCAL_IMAGE": th.localImage, "EXTRA_HOSTS": items("extra_hosts"),
			"MEMORY_LIMIT": to("memory_limit"), "BIND_PATH": items("volumes"), "REGISTRY_USERNAME": to("registry.username"),
			"REGISTRY_PASSWORD": th.with(Mapped, jobPart+".registry.password", "it is secret: keep the file where only you can read it"),
		}
	}
	return nil
}

// cluster are the variables that say how the cluster is reached. An agent in the
// cluster needs none of them; one beside the control plane needs credentials,
// which Tharsis has only in one case.
func (th *tharsis) cluster() handlers {
	inside := func(of string) func(yamldoc.Node, string) {
		return th.drop("the agent runs in the cluster, and needs no way to it; for one that does not, --set " + clusterPart + "." + of)
	}
	h := handlers{"REGION": inside("region=…"), "EKS_CLUSTER": inside("name=…"), "KUBE_SERVER": inside("server=…"), "CA_CERT": inside("certificate_authority_data=…"),
		"KUBE_CONFIG_PATH": th.drop("the agent runs in the cluster, or is told the file in FAIRLEAD_KUBECONFIG")}
	switch {
	case th.auth == "eks_iam" && th.given(clusterPart):
		h["REGION"], h["EKS_CLUSTER"] = th.same(clusterPart+".region"), th.same(clusterPart+".name")
	case th.auth == "eks_iam":
		role := th.drop("the agent runs in the cluster, and needs no way to it; one that does not needs a role there: --set " +
			clusterPart + ".auth.role_arn=ARN keeps region and name")
		h["REGION"], h["EKS_CLUSTER"] = role, role
	case th.auth == "x509_cert":
		h["KUBE_SERVER"], h["CA_CERT"] = th.same(clusterPart+".server"), th.same(clusterPart+".certificate_authority_data")
		h["CLIENT_CERT"] = th.same(clusterPart + ".auth.client_certificate_data")
		h["CLIENT_KEY"] = th.with(Mapped, clusterPart+".auth.client_key_data", "it is secret: keep the file where only you can read it")
	}
	return h
}

func (th *tharsis) authType(n yamldoc.Node, where string) {
	switch {
	case th.auth == "x509_cert":
		th.note(n.Place, Mapped, where, clusterPart+".auth", "")
	case th.auth == "eks_iam":
		th.note(n.Place, Changed, where, runnerPart+".type", "eks_iam makes it aws-eks; the agent runs in the cluster under the service account that came with it")
	default:
		th.note(n.Place, Dropped, where, "", "the agent runs in the cluster under the service account that came with it")
	}
}

func (th *tharsis) localImage(n yamldoc.Node, where string) {
	const to = jobPart + ".image_pull_policy"
	if !slices.Contains([]string{"true", "1", "t", "yes"}, strings.ToLower(n.Value.(string))) {
		th.note(n.Place, Dropped, where, to, "an image is pulled if it is not on the machine")
		return
	}
	th.put(to, text(n.Place, "Never"))
	th.note(n.Place, Changed, where, to, "an image that is only on the machine is one that is never pulled")
}

// pairs moves a=b,c=d.
func (th *tharsis) pairs(to string) func(yamldoc.Node, string) {
	return func(n yamldoc.Node, where string) {
		m := yamldoc.Node{Place: n.Place, Shape: yamldoc.Map}
		for _, item := range commas(n.Value.(string)) {
			k, v, ok := strings.Cut(item, "=")
			if !ok {
				k, v, ok = strings.Cut(item, ":")
			}
			if k = strings.TrimSpace(k); !ok || k == "" {
				th.problem(n.Place, "invalid-value", where+" is no list of name=value, separated by commas", "")
				return
			}
			m.Fields = append(m.Fields, yamldoc.Field{Place: n.Place, Key: k, Value: text(n.Place, strings.TrimSpace(v))})
		}
		th.put(to, m)
		th.note(n.Place, Mapped, where, to, "")
	}
}

// path makes the name and the group of the runner. An identifier of Tharsis'
// ends in the path, too, unless it is a global one, which says nothing.
func (th *tharsis) path(n yamldoc.Node, where string) {
	s := n.Value.(string)
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.HasPrefix(s, "trn:") {
		s = s[i+1:]
	} else if where == prefix+"RUNNER_ID" && !strings.Contains(s, "/") {
		th.note(n.Place, Dropped, where, "id", "it says neither name nor group; the name is given to `fairlead runner create`, and --set group=…")
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
		th.note(n.Place, fate, where, "group", "make the group first: fairlead group create "+fixed)
	}
}

// iamHelper reports whether the runner proves an AWS role.
func (th *tharsis) iamHelper() bool {
	return strings.HasPrefix(path.Base(th.of[prefix+"CREDENTIAL_HELPER_CMD_PATH"].value), "iamoidc")
}

// A configuration does not say who the agent is: the agent authenticates before it
// reads one. The importer drops such fields and names what replaces each.
const (
	noHelper = "Fairlead's runner starts no helper for its credentials: a token that is good once enrols it, or a trust lets its platform's in"
	ownRole  = "the agent proves its AWS role itself, without a helper: start it with FAIRLEAD_IDENTITY=aws-iam, and give the role to `fairlead runner create`: --aws-role ARN"
)

func (th *tharsis) helper(n yamldoc.Node, where string) {
	if th.iamHelper() {
		th.drop(ownRole)(n, where)
		return
	}
	th.drop(noHelper)(n, where)
}

func (th *tharsis) serviceAccount(n yamldoc.Node, where string) {
	if th.iamHelper() {
		th.drop("a role takes its place: `fairlead runner create` takes it, --aws-role ARN")(n, where)
		return
	}
	th.drop(noHelper)(n, where)
}

// helperArguments reads -region, -endpoint and -aud, all of which the helper
// needs for a token of Tharsis' issuer.
func (th *tharsis) helperArguments(n yamldoc.Node, where string) {
	if !th.iamHelper() {
		th.drop(noHelper)(n, where)
		return
	}
	whys := map[string]string{
		"region":   "set AWS_REGION in the environment of the agent",
		"endpoint": "it is the issuer that Tharsis trusts; no token is needed with a role",
		"aud":      "it is the audience of Tharsis' token; no token is needed with a role",
	}
	names, ok := arguments(n.Value.(string))
	if !ok {
		th.problem(n.Place, "invalid-value", where+" is no list of -name=value", "It has -region, -endpoint and -aud.")
		return
	}
	for _, name := range names {
		why, known := whys[name]
		if !known {
			th.problem(n.Place, "unknown-argument", fmt.Sprintf("%s: the helper has no argument -%s", where, yamldoc.Printable(name)),
				yamldoc.DidYouMean(name, "arguments", slices.Sorted(maps.Keys(whys))))
			continue
		}
		th.drop(why)(n, where+" -"+name)
	}
}
