package launchconfig_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/runnerspec/runnerspectest"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

const (
	common = "state_storage_configuration.type=http"
	kind   = "runner_configuration.type="
	ecsJob = "runner_configuration.job={region: eu-west-1, cluster: runners, subnets: [subnet-0123456789abcdef0], execution_role_arn: 'arn:aws:iam::123456789012:role/execution'}"
	uuid   = "01234567-89ab-cdef-0123-456789abcdef"
	other  = "fedcba98-7654-3210-fedc-ba9876543210"
	role   = "arn:aws:iam::123456789012:role/manager"
)

// installed is the least that a runner of the kind says whose agent is where its
// jobs run.
func installed(k runnerspec.Kind) []string {
	least := []string{common, kind + string(k)}
	if k == runnerspec.AWSECS {
		least = append(least, ecsJob)
	}
	return least
}

// direct is the least of one that is reached from beside the control plane.
func direct(k runnerspec.Kind) []string {
	reach := map[runnerspec.Kind]string{
		runnerspec.AWSECS:     "auth={role_arn: '" + role + "'}",
		runnerspec.AWSEKS:     "cluster={name: c, region: eu-west-1, auth: {role_arn: '" + role + "'}}",
		runnerspec.AzureAKS:   "cluster={name: c, resource_group: g, subscription_id: " + uuid + ", auth: {tenant_id: " + uuid + ", client_id: " + uuid + "}}",
		runnerspec.GCPGKE:     "cluster={name: c, project_id: p, location: l, auth: {gcp_audience: //iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q, gcp_service_account: r@p.iam.gserviceaccount.com}}",
		runnerspec.Kubernetes: "cluster={server: 'https://k8s.example.com', auth: {service_account_token: hush}}",
	}[k]
	least := append(installed(k), "runner_configuration."+reach)
	if k != runnerspec.AWSECS {
		least = append(least, "runner_configuration.job.namespace=runners", "runner_configuration.job.service_account=jobs")
	}
	return least
}

func read(t *testing.T, settings []string) *runnerspec.Spec {
	t.Helper()
	r := runnerspec.Parse("runner.yaml", nil, settings...)
	if r.Spec == nil {
		t.Fatalf("%v\nof\n%s", r.Problems, strings.Join(settings, "\n"))
	}
	return r.Spec
}

// file is that of an agent about which nothing is known but what its executor cannot
// do without.
func file(k runnerspec.Kind) runnerspec.Configuration {
	if k == runnerspec.Docker {
		return &runnerspec.DockerRunner{Common: runnerspec.Common{Type: k}, Job: runnerspec.DockerJob{Registry: &runnerspec.Registry{PasswordFile: os.DevNull}}}
	}
	return runnerspec.NoAgentFile().Runner
}

// told is what the control plane itself makes of a configuration: it is in the
// signed spec of each job, in the job's terms, or holds jobs back.
type told struct {
	Environment   map[string]string
	Endpoint      string
	Timeout       string
	StartTimeout  string
	NoOutput      string
	Grace         string
	AtOnce        int
	SecretsSealed []string
}

// lines are all that follows from a configuration, one for each value.
func lines(t *testing.T, s *runnerspec.Spec, direct bool) []string {
	t.Helper()
	su, err := launchconfig.Of(file(s.Runner.Kind()), s.Runner, direct)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	flatten("", reflect.ValueOf(su), &out)
	flatten("control", reflect.ValueOf(told{Environment: s.Environment(), Endpoint: s.JobEndpoint(), Timeout: fmt.Sprint(s.JobTimeout()),
		StartTimeout: fmt.Sprint(s.StartTimeout()), NoOutput: fmt.Sprint(s.NoOutput()), Grace: fmt.Sprint(s.StopGrace()), AtOnce: s.Concurrency(), SecretsSealed: s.Secrets()}), &out)
	return out
}

func flatten(path string, v reflect.Value, out *[]string) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Interface:
		flatten(path, v.Elem(), out)
	case v.Kind() == reflect.Pointer:
		flatten(path, v.Elem(), out)
	case v.Type() == reflect.TypeFor[runnerspec.Object]():
		if v.Len() > 0 {
			b, _ := json.Marshal(v.Interface())
			*out = append(*out, path+"="+string(b))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := path + "." + f.Name
			if f.Anonymous {
				name = path
			}
			flatten(strings.TrimPrefix(name, "."), v.Field(i), out)
		}
	case v.Kind() == reflect.Map:
		for _, k := range v.MapKeys() {
			*out = append(*out, fmt.Sprintf("%s.%s=%v", path, k, v.MapIndex(k)))
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			*out = append(*out, fmt.Sprintf("%s=%v", path, v.Index(i)))
		}
	case v.Type() == reflect.TypeFor[runnerspec.Secret]():
		if !v.IsZero() {
			*out = append(*out, path+"=a secret of "+fmt.Sprint(v.Len())) // formatting one shows nothing
		}
	case !v.IsZero():
		*out = append(*out, fmt.Sprintf("%s=%v", path, v.Interface()))
	}
}

// lands says what a value of a field becomes, beside the field of the setup's own
// configuration: lines that are new with it.
type lands struct {
	value   string
	lines   []string
	by      string   // folder in runner whose code reads the field; "": what the lines are is all
	refused bool     // the field would have no effect, so it is a problem
	with    []string // other fields that it cannot be without
}

// readBy sets by of rows that have none.
func readBy(folder string, rows map[string]lands) map[string]lands {
	for name, row := range rows {
		row.by = cmp.Or(row.by, folder)
		rows[name] = row
	}
	return rows
}

func in(prefix string, rows map[string]lands) map[string]lands {
	out := map[string]lands{}
	for name, row := range rows {
		out[prefix+name] = row
	}
	return out
}

// everywhere are the fields of all kinds.
func everywhere() map[string]lands {
	return map[string]lands{
		"endpoint":    {value: "https://fairlead.example.com", lines: []string{"StepURL=https://fairlead.example.com"}},
		"concurrency": {value: "7", lines: []string{"Concurrency=7", "control.AtOnce=7"}},
		"version":     {value: "v1.2.3"}, // the agent is told, and sets nothing
		"channel":     {value: "stable"},

		"job.endpoint":          {value: "https://inside.example.com", lines: []string{"StepURL=https://inside.example.com", "control.Endpoint=https://inside.example.com"}},
		"job.environment":       {value: "{TF_LOG: debug}", lines: []string{"control.Environment.TF_LOG=debug"}},
		"job.proxy.http_proxy":  {value: "http://p:1", lines: []string{"Environ.http_proxy=http://p:1", "Environ.HTTP_PROXY=http://p:1", "control.Environment.http_proxy=http://p:1", "control.Environment.HTTP_PROXY=http://p:1"}},
		"job.proxy.https_proxy": {value: "http://p:2", lines: []string{"Environ.https_proxy=http://p:2", "Environ.HTTPS_PROXY=http://p:2", "control.Environment.https_proxy=http://p:2", "control.Environment.HTTPS_PROXY=http://p:2"}},
		"job.proxy.no_proxy":    {value: "10.0.0.0/8", lines: []string{"Environ.no_proxy=10.0.0.0/8", "Environ.NO_PROXY=10.0.0.0/8", "control.Environment.no_proxy=10.0.0.0/8", "control.Environment.NO_PROXY=10.0.0.0/8"}},
		"job.timeout":           {value: "20m", lines: []string{"control.Timeout=20m0s"}},
		"job.start_timeout":     {value: "90s", lines: []string{"control.StartTimeout=1m30s"}},
		"job.no_output_timeout": {value: "15m", lines: []string{"control.NoOutput=15m0s"}},
		"job.stop_grace":        {value: "40s", lines: []string{"control.Grace=40s"}},
	}
}

func ofKubernetes() map[string]lands {
	return readBy("executor/kubernetes", in("job.", map[string]lands{
		"namespace":         {value: "n"},
		"service_account":   {value: "sa"},
		"image":             {value: "r.example/i:1"},
		"image_pull_policy": {value: "Always"},
		"pull_secrets":      {value: "[regcred]"},
		"cpu_request":       {value: "250m"},
		"cpu_limit":         {value: "2"},
		"memory_request":    {value: "1Gi"},
		"memory_limit":      {value: "2Gi"},
		"disk":              {value: "5Gi"},
		"node_selector":     {value: "{disk: ssd, arch: arm64}"},
		"labels":            {value: "{team: blue}"},
		"pod_template":      {value: "{metadata: {annotations: {note: x}}}"},
		"secrets":           {value: "{LICENCE: vault/key}", lines: []string{"SecretEnv=LICENCE"}},
		"start_timeout":     {value: "90s", lines: []string{"control.StartTimeout=1m30s"}},
		"stop_grace":        {value: "40s", lines: []string{"control.Grace=40s"}},
		"kubeconfig":        {value: "/etc/kubeconfig"},
		"data":              {value: "/srv"},
		"keep_for":          {value: "2h"},
		"pass_env":          {value: "[A, B]"},
	}))
}

func ofAWSAuth(at string) map[string]lands {
	return readBy("executor/assume", in(at, map[string]lands{
		"role_arn":     {value: "arn:aws:iam::123456789012:role/two"},
		"external_id":  {value: "x1"},
		"session_name": {value: "s1"},
		"sts_region":   {value: "eu-west-2"},
	}))
}

// rows are where the fields of a kind land.
func rows(k runnerspec.Kind) map[string]lands {
	all := everywhere()
	add := func(more map[string]lands) {
		for name, row := range more {
			all[name] = row
		}
	}
	reach := func(values map[string]string) {
		for name, value := range values {
			by := "executor/kubernetes/remote"
			if k == runnerspec.AWSEKS && strings.HasPrefix(name, "auth.") {
				by = "executor/assume"
			}
			all["cluster."+name] = lands{value: value, by: by}
		}
	}
	switch k {
	case runnerspec.AWSEKS, runnerspec.AzureAKS, runnerspec.GCPGKE, runnerspec.Kubernetes:
		add(ofKubernetes())
	}
	const proxy = "http://proxy.example.com:3128"
	switch k {
	case runnerspec.AWSEKS:
		reach(map[string]string{"name": "d", "region": "eu-west-2", "proxy_url": proxy, "auth.role_arn": "arn:aws:iam::123456789012:role/two", "auth.external_id": "x1", "auth.session_name": "s1", "auth.sts_region": "eu-west-2"})
	case runnerspec.AzureAKS:
		reach(map[string]string{"name": "d", "resource_group": "h", "subscription_id": other, "proxy_url": proxy, "auth.tenant_id": other, "auth.client_id": other})
	case runnerspec.GCPGKE:
		reach(map[string]string{"name": "d", "project_id": "q", "location": "m", "internal_ip": "true", "proxy_url": proxy,
			"auth.gcp_audience": "//iam.googleapis.com/projects/2/locations/global/workloadIdentityPools/p/providers/q", "auth.gcp_service_account": "s@p.iam.gserviceaccount.com"})
	case runnerspec.Kubernetes:
		reach(map[string]string{"server": "https://two.example.com", "certificate_authority_data": "eA==", "proxy_url": proxy})
		certificate := []string{"runner_configuration.cluster.auth={service_account_token: null, client_certificate_data: eA==, client_key_data: eQ==}"}
		add(map[string]lands{
			"cluster.auth.service_account_token":   {value: "hushhush", lines: []string{"control.SecretsSealed=hushhush"}, by: "executor/kubernetes/remote"},
			"cluster.auth.client_key_data":         {value: "eXl5eQ==", lines: []string{"control.SecretsSealed=eXl5eQ=="}, by: "executor/kubernetes/remote", with: certificate},
			"cluster.auth.client_certificate_data": {value: "eHg=", by: "executor/kubernetes/remote", with: certificate},
		})
	case runnerspec.AWSECS:
		const secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x"
		image := []string{"runner_configuration.job.image=r.example/i:1"}
		add(readBy("executor/ecs", in("job.", map[string]lands{
			"log_prefix":         {value: "p"},
			"data":               {value: "/srv"},
			"pass_env":           {value: "[A, B]"},
			"region":             {value: "eu-west-2"},
			"cluster":            {value: "c2"},
			"subnets":            {value: "[subnet-0123456789abcdef1]"},
			"security_groups":    {value: "[sg-0123456789abcdef1]"},
			"public_ip":          {value: "true"},
			"launch_type":        {value: "ec2"},
			"task_definition":    {value: "runner:7", with: []string{"runner_configuration.job.execution_role_arn=null"}},
			"task_role_arn":      {value: role},
			"execution_role_arn": {value: role},
			"image":              {value: "r.example/i:1"},
			"pull_secret":        {value: secret, with: image},
			"cpu":                {value: "2", with: []string{"runner_configuration.job.memory=4Gi"}},
			"memory":             {value: "4Gi"},
			"disk":               {value: "30Gi"},
			"log_group":          {value: "/jobs"},
			"labels":             {value: "{team: blue}"},
			"secrets":            {value: "{LICENCE: '" + secret + "'}", lines: []string{"SecretEnv=LICENCE"}, with: image},
			"start_timeout":      {value: "90s", lines: []string{"control.StartTimeout=1m30s"}},
			"stop_grace":         {value: "40s", lines: []string{"control.Grace=40s"}, with: image},
		})))
		add(ofAWSAuth("auth."))
	case runnerspec.Docker:
		registry := []string{"runner_configuration.job.registry={username: somebody, password: hush}"}
		all["host"] = lands{value: "unix:///other.sock", by: "executor/docker"}
		add(readBy("executor/docker", in("job.", map[string]lands{
			"registry.password_file": {value: "/run/p"},
			"pids_limit":             {value: "7"},
			"host_data":              {value: "/srv"},
			"image":                  {value: "r.example/i:1"},
			"image_pull_policy":      {value: "Never"},
			"registry.username":      {value: "ci", with: registry},
			"registry.password":      {value: "hushhush", lines: []string{"control.SecretsSealed=hushhush"}, with: registry, by: "../pkg/runnerspec"}, // and in a file of the agent
			"cpu_limit":              {value: "2"},
			"memory_limit":           {value: "2Gi"},
			"volumes":                {value: "['/srv:/srv:ro']"},
			"extra_hosts":            {value: "['db:10.0.0.7']"},
			"network":                {value: "host"},
			"labels":                 {value: "{team: blue}"},
			"secrets":                {value: "{LICENCE: /run/licence}", lines: []string{"SecretEnv=LICENCE", "SecretFiles.LICENCE=/run/licence"}, by: "internal/launchconfig"},
			"stop_grace":             {value: "40s", lines: []string{"control.Grace=40s"}},
		})))
	case runnerspec.Local:
		add(in("job.", map[string]lands{
			"folder":  {value: "/srv/jobs", by: "agent"},
			"secrets": {value: "{LICENCE: /run/licence}", lines: []string{"SecretEnv=LICENCE", "SecretFiles.LICENCE=/run/licence"}},
			"labels":  {value: "{team: blue}", refused: true},
		}))
	}
	return all
}

// TestEveryFieldLands goes through the schema of every kind: a field that changes
// nothing, or has no row that says what it changes, fails.
func TestEveryFieldLands(t *testing.T) {
	for _, k := range runnerspec.Kinds() {
		rows := rows(k)
		fields := runnerspectest.RunnerFields(t, k)
		for _, f := range fields {
			if slices.ContainsFunc(fields, func(g runnerspectest.Field) bool { return strings.HasPrefix(g.Path, f.Path+".") }) {
				continue // it holds others
			}
			name := strings.TrimPrefix(f.Path, "runner_configuration.")
			if name == "type" {
				continue // TestTheKindNamesTheExecutor
			}
			row, ok := rows[name]
			delete(rows, name)
			if !ok {
				t.Errorf("%s: nobody says where %s lands", k, name)
				continue
			}
			t.Run(string(k)+"/"+name, func(t *testing.T) { check(t, k, f.Path, f.Only, row) })
		}
		for name := range rows {
			t.Errorf("%s: there is a row for %s, which is no field", k, name)
		}
	}
}

// selected are the names of fields that the code in a folder of runner selects.
func selected(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(files), err)
	}
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				names[sel.Sel.Name] = true
			}
			return true
		})
	}
	return names
}

// goName is what code calls the field at a path.
func goName(t reflect.Type, path []string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != path[0] || f.Anonymous {
			continue
		}
		if len(path) == 1 {
			return f.Name
		}
		return goName(f.Type, path[1:])
	}
	return ""
}

// agentFile is the file of an agent that gives one field.
func agentFile(k runnerspec.Kind, path, value string) []byte {
	names := strings.Split(strings.TrimPrefix(path, "runner_configuration."), ".")
	for _, name := range slices.Backward(names) {
		value = "{" + name + ": " + value + "}"
	}
	return []byte("{runner_configuration: {type: " + string(k) + ", " + value[1:] + "}")
}

func otherSide(problems runnerspec.Problems) bool {
	return slices.ContainsFunc(problems, func(p runnerspec.Problem) bool { return p.Code == "other-side" })
}

func check(t *testing.T, k runnerspec.Kind, path, only string, row lands) {
	a, problems := runnerspec.ParseAgent("agent.yaml", agentFile(k, path, row.value))
	if other := otherSide(problems); other != (only == "control plane") && !row.refused && !strings.HasPrefix(path, "runner_configuration.cluster.") && !strings.HasPrefix(path, "runner_configuration.auth.") {
		t.Errorf("in an agent's file: %v", problems)
	}
	if row.by != "" {
		if name := goName(reflect.TypeOf(read(t, installed(k)).Runner), strings.Split(strings.TrimPrefix(path, "runner_configuration."), ".")); !selected(t, row.by)[name] {
			t.Errorf("the code in %s reads no %s", row.by, name)
		}
	}
	switch row.by {
	case "executor/kubernetes", "executor/docker", "executor/ecs":
		checkLaunched(t, k, path, only, row)
	}
	if only == "agent" {
		if r := runnerspec.Parse("runner.yaml", nil, append(installed(k), path+"="+row.value)...); !otherSide(r.Problems) {
			t.Errorf("in the control plane's configuration: %v", r.Problems)
		}
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		s, err := launchconfig.Of(a.Runner, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		var with, without []string
		flatten("", reflect.ValueOf(s), &with)
		flatten("", reflect.ValueOf(file(k)), &without)
		if len(with) <= len(without)-1 || !slices.ContainsFunc(with, func(l string) bool { return strings.HasPrefix(l, "Runner.Job.") }) {
			t.Errorf("it becomes nothing: %v", with)
		}
		return
	}
	outside := strings.Contains(path, ".cluster.") || strings.HasPrefix(path, "runner_configuration.auth.")
	base := installed(k)
	if outside {
		base = direct(k)
	}
	base = append(base, row.with...)
	set := append(slices.Clone(base), path+"="+row.value)
	if row.refused {
		if r := runnerspec.Parse("runner.yaml", nil, set...); r.Spec != nil {
			t.Error("it is accepted, and would have no effect")
		}
		return
	}
	before := base
	if slices.ContainsFunc(row.with, func(s string) bool { return strings.HasPrefix(s, path+"=") }) {
		before = slices.DeleteFunc(slices.Clone(base), func(s string) bool { return strings.HasPrefix(s, path+"=") })
	}
	if r := runnerspec.Parse("runner.yaml", nil, before...); r.Spec == nil {
		before = installed(k) // it cannot be left out of the rest
		if outside {
			before = direct(k)
		}
	}
	was := lines(t, read(t, before), outside)
	var isNew []string
	kept := false
	for _, l := range lines(t, read(t, set), outside) {
		switch {
		case slices.Contains(was, l):
		case strings.HasPrefix(l, "Runner."):
			kept = true
		default:
			isNew = append(isNew, l)
		}
	}
	if !kept {
		t.Error("it is lost when it is merged over the agent's file")
	}
	for _, want := range row.lines {
		if i := slices.Index(isNew, want); i >= 0 {
			isNew = slices.Delete(isNew, i, i+1)
		} else {
			t.Errorf("it does not become %s", want)
		}
	}
	// Companions that could not be left out before are not the field's.
	companions := strings.Join(row.with, " ")
	for _, l := range isNew {
		_, value, _ := strings.Cut(l, "=")
		if !strings.Contains(companions, value) {
			t.Errorf("it also becomes %s", l)
		}
	}
}

// checkLaunched holds a field to what the executor sends to start a step: with the field
// it differs.
func checkLaunched(t *testing.T, k runnerspec.Kind, path, only string, row lands) {
	name := strings.TrimPrefix(path, "runner_configuration.")
	least := slices.Concat(installed(k), launchable(k), row.with)
	own, set := file(k), least
	if only == "agent" {
		own = fileOf(t, strings.TrimSuffix(strings.TrimPrefix(string(agentFile(k, path, row.value)), "{runner_configuration: "), "}"))
	} else {
		set = append(slices.Clone(least), path+"="+row.value)
		if r := runnerspec.Parse("runner.yaml", nil, set...); r.Spec == nil { // it is instead of what is launchable otherwise
			set = slices.Concat(installed(k), row.with, []string{path + "=" + row.value})
		}
	}
	steps := t.TempDir() // the same for both: it is in what is sent
	of := func(own runnerspec.Configuration, settings []string) string {
		s, err := launchconfig.Of(own, read(t, settings).Runner, false)
		if err != nil {
			t.Fatal(err)
		}
		return launched(t, s, steps)
	}
	if r := runnerspec.Parse("runner.yaml", nil, least...); r.Spec == nil {
		least = append(installed(k), launchable(k)...) // the others cannot be without the field
	}
	without, with := of(file(k), least), of(own, set)
	switch why, ok := unlaunched[name]; {
	case ok && without != with:
		t.Errorf("it changes what is sent, not only %s:\n%s", why, with)
	case !ok && without == with:
		t.Errorf("nothing that is sent to start a step differs:\n%s", with)
	}
}

// fileOf reads an agent's file with the runner_configuration.
func fileOf(t *testing.T, text string) runnerspec.Configuration {
	t.Helper()
	a, problems := runnerspec.ParseAgent("agent.yaml", []byte("{runner_configuration: "+text+"}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return a.Runner
}

func TestTheKindNamesTheExecutor(t *testing.T) {
	for k, want := range map[runnerspec.Kind][2]string{ // without a file, with one of kind docker; "": they contradict each other
		runnerspec.AWSECS: {"ecs", ""}, runnerspec.AWSEKS: {"kubernetes", ""}, runnerspec.AzureAKS: {"kubernetes", ""}, runnerspec.GCPGKE: {"kubernetes", ""},
		runnerspec.Kubernetes: {"kubernetes", ""}, runnerspec.Docker: {"docker", "docker"},
		runnerspec.Local: {"process", "docker"}, // what a runner is without a configuration, so the file may name another
	} {
		for i, f := range []runnerspec.Configuration{runnerspec.NoAgentFile().Runner, fileOf(t, "{type: docker}")} {
			s, err := launchconfig.Of(f, read(t, installed(k)).Runner, false)
			switch {
			case want[i] == "" && (err == nil || !strings.Contains(err.Error(), "the agent's file is for a runner of kind docker")):
				t.Errorf("%s with a file of kind docker: %v", k, err)
			case want[i] != "" && (err != nil || s.Executor() != want[i]):
				t.Errorf("%s with a file of kind %s: %s, %v, want %s", k, f.Kind(), s.Executor(), err, want[i])
			}
		}
	}
}

// What a configuration leaves out is the agent's file's.
func TestTheFileFillsIn(t *testing.T) {
	of := func(file string, settings ...string) launchconfig.Setup {
		t.Helper()
		s, err := launchconfig.Of(fileOf(t, file), read(t, settings).Runner, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := of("{type: docker, concurrency: 3, job: {image: 'd:1', network: n, pids_limit: 12, host_data: /data, endpoint: 'https://inside', labels: {a: b}}}",
		append(installed(runnerspec.Docker), "runner_configuration.job.network=mine", "runner_configuration.concurrency=9", "runner_configuration.endpoint=https://outside", "runner_configuration.job.labels={c: d}")...)
	if d := s.Runner.(*runnerspec.DockerRunner).Job; d.Image != "d:1" || d.Network != "mine" || d.PIDsLimit != 12 || d.HostData != "/data" || s.StepURL != "https://inside" || len(d.Labels) != 2 {
		t.Errorf("%+v", s)
	}
	if s.Concurrency != 3 {
		t.Errorf("%d jobs at once on a machine that is to hold 3", s.Concurrency)
	}
	s = of("{type: kubernetes, job: {namespace: n, image: 'k:1', memory_request: 1Mi, start_timeout: 1m, data: /d, labels: {a: b}, pass_env: []}}", append(installed(runnerspec.AzureAKS), "runner_configuration.job.namespace=m")...)
	if k := runnerspec.KubernetesJobOf(s.Runner); s.Runner.Kind() != runnerspec.AzureAKS || k.Namespace != "m" || k.Image != "k:1" || k.MemoryRequest != 1<<20 || time.Duration(k.StartTimeout) != time.Minute || k.Data != "/d" || k.Labels["a"] != "b" || k.PassEnv == nil {
		t.Errorf("%+v", s.Runner)
	}
	const definition = "{type: aws-ecs, job: {cluster: c, task_definition: d, log_group: g}}"
	e := of(definition, installed(runnerspec.AWSECS)...).Runner.(*runnerspec.ECSRunner).Job
	if e.Cluster != "runners" || e.TaskDefinition != "d" || e.LogGroup != "g" {
		t.Errorf("%+v", e)
	}
	// Of an image that the control plane names a definition is made.
	e = of(definition, append(installed(runnerspec.AWSECS), "runner_configuration.job.image=i")...).Runner.(*runnerspec.ECSRunner).Job
	if e.Image != "i" || e.TaskDefinition != "" {
		t.Errorf("%+v", e)
	}
	// A runner without a configuration is local: it has what all kinds have.
	s = of("{type: docker, job: {image: 'd:1'}}", append(installed(runnerspec.Local), "runner_configuration.job={folder: /srv, secrets: {LICENCE: /run/licence}, proxy: {no_proxy: inside}}")...)
	if d, ok := s.Runner.(*runnerspec.DockerRunner); !ok || d.Job.Image != "d:1" || s.Environ["NO_PROXY"] != "inside" || s.SecretFiles["LICENCE"] != "/run/licence" {
		t.Errorf("%+v", s)
	}
	s = of("{type: local, concurrency: 2, job: {endpoint: 'https://inside', folder: /srv}}", append(installed(runnerspec.Kubernetes), "runner_configuration.job.image=k:1")...)
	if k := runnerspec.KubernetesJobOf(s.Runner); k == nil || k.Image != "k:1" || s.Concurrency != 2 || s.StepURL != "https://inside" {
		t.Errorf("%+v", s)
	}
	alone, err := launchconfig.Of(fileOf(t, "{type: docker, concurrency: 3, job: {image: 'd:1', endpoint: 'https://inside'}}"), nil, false)
	if err != nil || alone.Executor() != "docker" || alone.StepURL != "https://inside" || alone.Concurrency != 3 {
		t.Errorf("%+v, %v", alone, err)
	}
}

// Beside the control plane the file is the control plane's: it does not know where the
// jobs of a runner are, and its machine holds none.
func TestBesideTheControlPlaneTheConfigurationComesFirst(t *testing.T) {
	own := &runnerspec.KubernetesRunner{Common: runnerspec.Common{Type: runnerspec.Kubernetes, Endpoint: "https://public"}}
	with := append(direct(runnerspec.Kubernetes), "runner_configuration.concurrency=9")
	s, err := launchconfig.Of(own, read(t, with).Runner, true)
	if err != nil || s.StepURL != "https://public" || s.Concurrency != 9 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = launchconfig.Of(own, read(t, append(with, "runner_configuration.endpoint=https://theirs")).Runner, true); err != nil || s.StepURL != "https://theirs" {
		t.Errorf("%+v, %v", s, err)
	}
}

// What cannot be followed is told with what to do.
func TestWhatCannotBeFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []string
		file     string
		direct   bool
		says     string
	}{
		"an installed agent of a runner that is reached":  {settings: direct(runnerspec.Kubernetes), says: "beside the control plane"},
		"an agent beside the control plane without a way": {settings: installed(runnerspec.Kubernetes), direct: true, says: "does not say how"},
		"a password that stays where it is":               {settings: append(installed(runnerspec.Docker), "runner_configuration.job.registry={username: u, password: p}"), says: "job.registry.password_file"},
		"secrets of a task definition that is not made":   {settings: append(installed(runnerspec.AWSECS), "runner_configuration.job.secrets={A: 'arn:aws:ssm:eu-west-1:123456789012:parameter/a'}"), says: "job.image"},
		"a file as a secret of a task":                    {settings: append(installed(runnerspec.Local), "runner_configuration.job.secrets={A: /a}"), file: "{type: aws-ecs}", says: "Secrets Manager"},
	} {
		t.Run(name, func(t *testing.T) {
			f := runnerspec.NoAgentFile().Runner
			if tc.file != "" {
				f = fileOf(t, tc.file)
			}
			if _, err := launchconfig.Of(f, read(t, tc.settings).Runner, tc.direct); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	// A control plane that gives what is the agent's machine's.
	told := &runnerspec.DockerRunner{Common: runnerspec.Common{Type: runnerspec.Docker}, Job: runnerspec.DockerJob{HostData: "/etc"}}
	if _, err := launchconfig.Of(runnerspec.NoAgentFile().Runner, told, false); err == nil || !strings.Contains(err.Error(), "runner_configuration.job.host_data") {
		t.Errorf("got %v", err)
	}
}

// Each variable of earlier agents names a field that there is.
func TestReplacedVariablesNameFields(t *testing.T) {
	known := map[string]bool{"final": true}
	for _, k := range runnerspec.Kinds() {
		for _, f := range runnerspectest.RunnerFields(t, k) {
			known[f.Path] = f.Only != "control plane"
		}
	}
	for prefix, names := range map[string]string{
		"":            "EXECUTOR FOLLOW STEP_URL CONCURRENCY KUBECONFIG",
		"DOCKER_":     "HOST IMAGE PULL REGISTRY_USERNAME REGISTRY_PASSWORD_FILE CPU MEMORY PIDS NETWORK VOLUMES EXTRA_HOSTS LABELS HOST_DATA",
		"KUBERNETES_": "NAMESPACE SERVICE_ACCOUNT IMAGE PULL PULL_SECRETS CPU_REQUEST CPU_LIMIT MEMORY_REQUEST MEMORY_LIMIT DISK NODE_SELECTOR LABELS PASS_ENV POD_TEMPLATE_FILE DATA START_TIMEOUT STOP_GRACE KEEP_FOR",
		"ECS_":        "REGION CLUSTER SUBNETS SECURITY_GROUPS PUBLIC_IP LAUNCH_TYPE TASK_DEFINITION IMAGE TASK_ROLE EXECUTION_ROLE CPU MEMORY DISK TAGS LOG_GROUP LOG_PREFIX PASS_ENV START_TIMEOUT DATA",
	} {
		for _, name := range strings.Fields(names) {
			err := config.Replaced([]string{"FAIRLEAD_" + prefix + name + "=x"})
			_, field, ok := strings.Cut(fmt.Sprint(err), ": set ")
			if field, _, _ = strings.Cut(field, " "); !ok || !known[field] {
				t.Errorf("FAIRLEAD_%s%s: %v", prefix, name, err)
			}
		}
	}
}

// What an agent is told has the secrets masked, and is followed all the same; a
// field that is newer than the agent is not passed over.
func TestWhatIsToldIsRead(t *testing.T) {
	spec := read(t, append(installed(runnerspec.Docker), "runner_configuration.job.registry={username: u, password: hush}"))
	b, err := json.Marshal(spec.Masked().Runner)
	if err != nil || strings.Contains(string(b), "hush") {
		t.Fatalf("%s, %v", b, err)
	}
	r, err := runnerspec.DecodeRunner(b)
	if err != nil || r.(*runnerspec.DockerRunner).Job.Registry.Username != "u" {
		t.Errorf("%+v, %v", r, err)
	}
	newer := strings.Replace(string(b), `"type"`, `"sandbox":"gvisor","type"`, 1)
	if _, err := runnerspec.DecodeRunner([]byte(newer)); err == nil || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("got %v", err)
	}
}
