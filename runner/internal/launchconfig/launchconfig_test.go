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

// installed returns the minimal settings of a runner of the kind whose agent runs where its steps run.
func installed(k runnerspec.Kind) []string {
	least := []string{common, kind + string(k)}
	if k == runnerspec.AWSECS {
		least = append(least, ecsJob)
	}
	return least
}

// direct returns the minimal settings of a runner whose agent runs next to the control plane.
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

// read parses the settings of a runner file.
func read(t *testing.T, settings []string) *runnerspec.Spec {
	t.Helper()
	r := runnerspec.Parse("runner.yaml", nil, settings...)
	if r.Spec == nil {
		t.Fatalf("%v\nin the settings\n%s", r.Problems, strings.Join(settings, "\n"))
	}
	return r.Spec
}

// file returns a minimal agent's file: only with the settings that the executor requires.
func file(k runnerspec.Kind) runnerspec.Configuration {
	if k == runnerspec.Docker {
		return &runnerspec.DockerRunner{Common: runnerspec.Common{Type: k}, Job: runnerspec.DockerJob{Registry: &runnerspec.Registry{PasswordFile: os.DevNull}}}
	}
	return runnerspec.NoAgentFile().Runner
}

// controlled holds the settings that the control plane itself applies: in the signed spec of each job, in the job's limits,
// or by queueing jobs.
type controlled struct {
	Environment   map[string]string
	Endpoint      string
	Timeout       string
	StartTimeout  string
	NoOutput      string
	Grace         string
	AtOnce        int
	SecretsSealed []string
}

// lines returns all effects of a configuration, one line for each value.
func lines(t *testing.T, s *runnerspec.Spec, direct bool) []string {
	t.Helper()
	su, err := launchconfig.Of(file(s.Runner.Kind()), s.Runner, direct)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	flatten("", reflect.ValueOf(su), &out)
	flatten("control", reflect.ValueOf(controlled{Environment: s.Environment(), Endpoint: s.JobEndpoint(), Timeout: fmt.Sprint(s.JobTimeout()),
		StartTimeout: fmt.Sprint(s.StartTimeout()), NoOutput: fmt.Sprint(s.NoOutput()), Grace: fmt.Sprint(s.StopGrace()), AtOnce: s.Concurrency(), SecretsSealed: s.Secrets()}), &out)
	return out
}

// flatten appends a line "path=value" to out for each value in v that is not zero.
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
			*out = append(*out, path+"=a secret of "+fmt.Sprint(v.Len())) // a formatted Secret does not show its value
		}
	case !v.IsZero():
		*out = append(*out, fmt.Sprintf("%s=%v", path, v.Interface()))
	}
}

// effect describes the effect of a field's value, in addition to the field in Setup.Runner.
type effect struct {
	value   string
	lines   []string // the lines that the value adds
	by      string   // folder below runner whose code reads the field; "": the field has no effect except lines
	refused bool     // the parser refuses the field, because it would have no effect
	with    []string // other settings that the field requires
}

// readBy sets by in the rows that have none.
func readBy(folder string, rows map[string]effect) map[string]effect {
	for name, row := range rows {
		row.by = cmp.Or(row.by, folder)
		rows[name] = row
	}
	return rows
}

func in(prefix string, rows map[string]effect) map[string]effect {
	out := map[string]effect{}
	for name, row := range rows {
		out[prefix+name] = row
	}
	return out
}

// everywhere returns the effects of the fields that all kinds have.
func everywhere() map[string]effect {
	return map[string]effect{
		"endpoint":    {value: "https://fairlead.example.com", lines: []string{"StepURL=https://fairlead.example.com"}},
		"concurrency": {value: "7", lines: []string{"Concurrency=7", "control.AtOnce=7"}},
		"whole_roles": {value: "true", lines: []string{"WholeRoles=true"}},
		"version":     {value: "v1.2.3"}, // the control plane requests this version; it has no effect on steps
		"channel":     {value: "stable"},
		"builds":      {value: "true"}, // the control plane queues builds on the runner; it has no effect on steps

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

// ofKubernetes returns the effects of a Kubernetes job's fields.
func ofKubernetes() map[string]effect {
	return readBy("executor/kubernetes", in("job.", map[string]effect{
		"namespace":                    {value: "n"},
		"service_account":              {value: "sa"},
		"service_accounts.read_only":   {value: "sa-read-only"},
		"service_accounts.deploy":      {value: "sa-deploy"},
		"service_accounts.provision":   {value: "sa-provision"},
		"service_accounts.deprovision": {value: "sa-deprovision"},
		"image":                        {value: "r.example/i:1"},
		"image_pull_policy":            {value: "Always"},
		"pull_secrets":                 {value: "[regcred]"},
		"cpu_request":                  {value: "250m"},
		"cpu_limit":                    {value: "2"},
		"memory_request":               {value: "1Gi"},
		"memory_limit":                 {value: "2Gi"},
		"disk":                         {value: "5Gi"},
		"node_selector":                {value: "{disk: ssd, arch: arm64}"},
		"labels":                       {value: "{team: blue}"},
		"pod_template":                 {value: "{metadata: {annotations: {note: x}}}"},
		"secrets":                      {value: "{LICENCE: vault/key}", lines: []string{"SecretEnv=LICENCE"}},
		"start_timeout":                {value: "90s", lines: []string{"control.StartTimeout=1m30s"}},
		"stop_grace":                   {value: "40s", lines: []string{"control.Grace=40s"}},
		"kubeconfig":                   {value: "/etc/kubeconfig"},
		"data":                         {value: "/srv"},
		"keep_for":                     {value: "2h"},
		"images":                       {value: "[registry.example.com/tools]", by: "../pkg/runnerspec"},
		"pass_env":                     {value: "[A, B]"},
	}))
}

// ofAWSAuth returns the effects of the fields that assume an AWS role.
func ofAWSAuth(at string) map[string]effect {
	return readBy("executor/assume", in(at, map[string]effect{
		"role_arn":     {value: "arn:aws:iam::123456789012:role/two"},
		"external_id":  {value: "x1"},
		"session_name": {value: "s1"},
		"sts_region":   {value: "eu-west-2"},
	}))
}

// rows returns the effects of all fields of a kind.
func rows(k runnerspec.Kind) map[string]effect {
	all := everywhere()
	add := func(more map[string]effect) {
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
			all["cluster."+name] = effect{value: value, by: by}
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
		add(map[string]effect{
			"cluster.auth.service_account_token":   {value: "hushhush", lines: []string{"control.SecretsSealed=hushhush"}, by: "executor/kubernetes/remote"},
			"cluster.auth.client_key_data":         {value: "eXl5eQ==", lines: []string{"control.SecretsSealed=eXl5eQ=="}, by: "executor/kubernetes/remote", with: certificate},
			"cluster.auth.client_certificate_data": {value: "eHg=", by: "executor/kubernetes/remote", with: certificate},
		})
	case runnerspec.AWSECS:
		const secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x"
		image := []string{"runner_configuration.job.image=r.example/i:1"}
		add(readBy("executor/ecs", in("job.", map[string]effect{
			"log_prefix":         {value: "p"},
			"warm_tasks":         {value: "3", lines: []string{"WarmTasks=3"}, by: "internal/launchconfig"},
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
			"image_definitions":  {value: "{'registry.example.com/tools@sha256:" + strings.Repeat("a", 64) + "': tools}"},
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
		registry := []string{"runner_configuration.job.registry={username: someone, password: hush}"}
		all["host"] = effect{value: "unix:///other.sock", by: "executor/docker"}
		add(readBy("executor/docker", in("job.", map[string]effect{
			"registry.password_file": {value: "/run/p"},
			"pids_limit":             {value: "7"},
			"host_data":              {value: "/srv"},
			"images":                 {value: "[registry.example.com/tools]", by: "../pkg/runnerspec"},
			"image":                  {value: "r.example/i:1"},
			"image_pull_policy":      {value: "Never"},
			"registry.username":      {value: "ci", with: registry},
			"registry.password":      {value: "hushhush", lines: []string{"control.SecretsSealed=hushhush"}, with: registry, by: "../pkg/runnerspec"}, // the agent reads the password from a file
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
		add(in("job.", map[string]effect{
			"folder":  {value: "/srv/jobs", by: "agent"},
			"secrets": {value: "{LICENCE: /run/licence}", lines: []string{"SecretEnv=LICENCE", "SecretFiles.LICENCE=/run/licence"}},
			"labels":  {value: "{team: blue}", refused: true},
		}))
	}
	return all
}

// The test checks the schema of every kind. Each field must have an effect, and a row that describes the effect.
func TestEveryConfigurationFieldHasAnEffect(t *testing.T) {
	for _, k := range runnerspec.Kinds() {
		rows := rows(k)
		fields := runnerspectest.RunnerFields(t, k)
		for _, f := range fields {
			if slices.ContainsFunc(fields, func(g runnerspectest.Field) bool { return strings.HasPrefix(g.Path, f.Path+".") }) {
				continue // the field contains other fields
			}
			name := strings.TrimPrefix(f.Path, "runner_configuration.")
			if name == "type" {
				continue // see TestKindSelectsTheExecutor
			}
			row, ok := rows[name]
			delete(rows, name)
			if !ok {
				t.Errorf("%s: no row describes the effect of the field %s", k, name)
				continue
			}
			t.Run(string(k)+"/"+name, func(t *testing.T) { check(t, k, f.Path, f.Only, row) })
		}
		for name := range rows {
			t.Errorf("%s: the row %s is for a field that does not exist", k, name)
		}
	}
}

// selected returns the names of the struct fields that the code in a folder below runner reads.
func selected(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the folder %s has %d Go files: %v", folder, len(files), err)
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

// goName returns the Go name of the field at a path of JSON names.
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

// agentFile returns an agent's file with one field.
func agentFile(k runnerspec.Kind, path, value string) []byte {
	names := strings.Split(strings.TrimPrefix(path, "runner_configuration."), ".")
	for _, name := range slices.Backward(names) {
		value = "{" + name + ": " + value + "}"
	}
	return []byte("{runner_configuration: {type: " + string(k) + ", " + value[1:] + "}")
}

// otherSide reports whether a field belongs only in the agent's file, or only in the control plane's configuration.
func otherSide(problems runnerspec.Problems) bool {
	return slices.ContainsFunc(problems, func(p runnerspec.Problem) bool { return p.Code == "other-side" })
}

// check tests the effect of one field. only is "agent" or "control plane" if the field is valid only there.
func check(t *testing.T, k runnerspec.Kind, path, only string, row effect) {
	a, problems := runnerspec.ParseAgent("agent.yaml", agentFile(k, path, row.value))
	if other := otherSide(problems); other != (only == "control plane") && !row.refused && !strings.HasPrefix(path, "runner_configuration.cluster.") && !strings.HasPrefix(path, "runner_configuration.auth.") {
		t.Errorf("the field in an agent's file has the problems %v", problems)
	}
	if row.by != "" {
		if name := goName(reflect.TypeOf(read(t, installed(k)).Runner), strings.Split(strings.TrimPrefix(path, "runner_configuration."), ".")); !selected(t, row.by)[name] {
			t.Errorf("the code in %s does not read the field %s", row.by, name)
		}
	}
	switch row.by {
	case "executor/kubernetes", "executor/docker", "executor/ecs":
		checkLaunched(t, k, path, only, row)
	}
	if only == "agent" {
		if r := runnerspec.Parse("runner.yaml", nil, append(installed(k), path+"="+row.value)...); !otherSide(r.Problems) {
			t.Errorf("the field in the control plane's configuration has the problems %v", r.Problems)
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
			t.Errorf("the field has no effect: %v", with)
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
			t.Error("the parser accepts the field, which has no effect")
		}
		return
	}
	before := base
	if slices.ContainsFunc(row.with, func(s string) bool { return strings.HasPrefix(s, path+"=") }) {
		before = slices.DeleteFunc(slices.Clone(base), func(s string) bool { return strings.HasPrefix(s, path+"=") })
	}
	if r := runnerspec.Parse("runner.yaml", nil, before...); r.Spec == nil {
		before = installed(k) // the other settings require the field
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
		t.Error("the merge over the agent's file drops the field")
	}
	for _, want := range row.lines {
		if i := slices.Index(isNew, want); i >= 0 {
			isNew = slices.Delete(isNew, i, i+1)
		} else {
			t.Errorf("the field does not have the effect %s", want)
		}
	}
	// Ignore the effects of the settings in row.with: they may not have been set before.
	companions := strings.Join(row.with, " ")
	for _, l := range isNew {
		_, value, _ := strings.Cut(l, "=")
		if !strings.Contains(companions, value) {
			t.Errorf("the field also has the effect %s", l)
		}
	}
}

// checkLaunched compares the executor's requests that start a step, without and with the field. They must differ, unless
// unsent lists the field.
func checkLaunched(t *testing.T, k runnerspec.Kind, path, only string, row effect) {
	name := strings.TrimPrefix(path, "runner_configuration.")
	least := slices.Concat(installed(k), launchable(k), row.with)
	own, set := file(k), least
	if only == "agent" {
		own = fileOf(t, strings.TrimSuffix(strings.TrimPrefix(string(agentFile(k, path, row.value)), "{runner_configuration: "), "}"))
	} else {
		set = append(slices.Clone(least), path+"="+row.value)
		if r := runnerspec.Parse("runner.yaml", nil, set...); r.Spec == nil { // the field excludes one of the settings of launchable
			set = slices.Concat(installed(k), row.with, []string{path + "=" + row.value})
		}
	}
	steps := t.TempDir() // the same folder for both, because the requests contain its path
	of := func(own runnerspec.Configuration, settings []string) string {
		s, err := launchconfig.Of(own, read(t, settings).Runner, false)
		if err != nil {
			t.Fatal(err)
		}
		return launched(t, s, steps)
	}
	if r := runnerspec.Parse("runner.yaml", nil, least...); r.Spec == nil {
		least = append(installed(k), launchable(k)...) // the other settings require the field
	}
	without, with := of(file(k), least), of(own, set)
	switch why, ok := unsent[name]; {
	case ok && without != with:
		t.Errorf("the field changes the requests, not only %s:\n%s", why, with)
	case !ok && without == with:
		t.Errorf("the field does not change the requests that start a step:\n%s", with)
	}
}

// fileOf parses an agent's file with this runner_configuration.
func fileOf(t *testing.T, text string) runnerspec.Configuration {
	t.Helper()
	a, problems := runnerspec.ParseAgent("agent.yaml", []byte("{runner_configuration: "+text+"}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return a.Runner
}

func TestKindSelectsTheExecutor(t *testing.T) {
	for k, want := range map[runnerspec.Kind][2]string{ // without a file, and with a file of kind docker; "": an error, because the kinds contradict each other
		runnerspec.AWSECS: {"ecs", ""}, runnerspec.AWSEKS: {"kubernetes", ""}, runnerspec.AzureAKS: {"kubernetes", ""}, runnerspec.GCPGKE: {"kubernetes", ""},
		runnerspec.Kubernetes: {"kubernetes", ""}, runnerspec.Docker: {"docker", "docker"},
		runnerspec.Local: {"process", "docker"}, // the kind of a runner without a configuration, so the file may set another kind
	} {
		for i, f := range []runnerspec.Configuration{runnerspec.NoAgentFile().Runner, fileOf(t, "{type: docker}")} {
			s, err := launchconfig.Of(f, read(t, installed(k)).Runner, false)
			switch {
			case want[i] == "" && (err == nil || !strings.Contains(err.Error(), "the agent's file is for a runner of kind docker")):
				t.Errorf("%s with a file of kind docker: got %v, want an error", k, err)
			case want[i] != "" && (err != nil || s.Executor() != want[i]):
				t.Errorf("%s with a file of kind %s: executor %s, %v, want %s", k, f.Kind(), s.Executor(), err, want[i])
			}
		}
	}
}

// The agent's file sets the fields that the control plane's configuration does not set.
func TestAgentFileSetsMissingFields(t *testing.T) {
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
		t.Errorf("wrong setup: %+v", s)
	}
	if s.Concurrency != 3 {
		t.Errorf("the setup has %d slots, want 3, the limit of the agent's file", s.Concurrency)
	}
	s = of("{type: kubernetes, job: {namespace: n, image: 'k:1', memory_request: 1Mi, start_timeout: 1m, data: /d, labels: {a: b}, pass_env: []}}", append(installed(runnerspec.AzureAKS), "runner_configuration.job.namespace=m")...)
	if k := runnerspec.KubernetesJobOf(s.Runner); s.Runner.Kind() != runnerspec.AzureAKS || k.Namespace != "m" || k.Image != "k:1" || k.MemoryRequest != 1<<20 || time.Duration(k.StartTimeout) != time.Minute || k.Data != "/d" || k.Labels["a"] != "b" || k.PassEnv == nil {
		t.Errorf("wrong configuration: %+v", s.Runner)
	}
	const definition = "{type: aws-ecs, job: {cluster: c, task_definition: d, log_group: g}}"
	e := of(definition, installed(runnerspec.AWSECS)...).Runner.(*runnerspec.ECSRunner).Job
	if e.Cluster != "runners" || e.TaskDefinition != "d" || e.LogGroup != "g" {
		t.Errorf("wrong job: %+v", e)
	}
	// If the control plane sets an image, the agent makes a task definition for it.
	e = of(definition, append(installed(runnerspec.AWSECS), "runner_configuration.job.image=i")...).Runner.(*runnerspec.ECSRunner).Job
	if e.Image != "i" || e.TaskDefinition != "" {
		t.Errorf("wrong job: %+v", e)
	}
	// A runner without a configuration has kind local; its fields apply to every kind.
	s = of("{type: docker, job: {image: 'd:1'}}", append(installed(runnerspec.Local), "runner_configuration.job={folder: /srv, secrets: {LICENCE: /run/licence}, proxy: {no_proxy: inside}}")...)
	if d, ok := s.Runner.(*runnerspec.DockerRunner); !ok || d.Job.Image != "d:1" || s.Environ["NO_PROXY"] != "inside" || s.SecretFiles["LICENCE"] != "/run/licence" {
		t.Errorf("wrong setup: %+v", s)
	}
	s = of("{type: local, concurrency: 2, job: {endpoint: 'https://inside', folder: /srv}}", append(installed(runnerspec.Kubernetes), "runner_configuration.job.image=k:1")...)
	if k := runnerspec.KubernetesJobOf(s.Runner); k == nil || k.Image != "k:1" || s.Concurrency != 2 || s.StepURL != "https://inside" {
		t.Errorf("wrong setup: %+v", s)
	}
	alone, err := launchconfig.Of(fileOf(t, "{type: docker, concurrency: 3, job: {image: 'd:1', endpoint: 'https://inside'}}"), nil, false)
	if err != nil || alone.Executor() != "docker" || alone.StepURL != "https://inside" || alone.Concurrency != 3 {
		t.Errorf("wrong setup without a configuration: %+v, %v", alone, err)
	}
}

// Next to the control plane, the agent's file is the control plane's own file. It does not limit the concurrency, because no
// step runs on the control plane's machine. The configuration's endpoint takes precedence over the file's endpoint.
func TestDirectAgentPrefersTheConfiguration(t *testing.T) {
	own := &runnerspec.KubernetesRunner{Common: runnerspec.Common{Type: runnerspec.Kubernetes, Endpoint: "https://public"}}
	with := append(direct(runnerspec.Kubernetes), "runner_configuration.concurrency=9")
	s, err := launchconfig.Of(own, read(t, with).Runner, true)
	if err != nil || s.StepURL != "https://public" || s.Concurrency != 9 {
		t.Errorf("wrong setup: %+v, %v", s, err)
	}
	if s, err = launchconfig.Of(own, read(t, append(with, "runner_configuration.endpoint=https://theirs")).Runner, true); err != nil || s.StepURL != "https://theirs" {
		t.Errorf("wrong setup: %+v, %v", s, err)
	}
}

// The error about a setting that the agent cannot apply names the fix.
func TestErrorOfAnUnusableSettingNamesTheFix(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []string
		file     string
		direct   bool
		want     string // part of the error
	}{
		"an installed agent with a direct configuration": {settings: direct(runnerspec.Kubernetes), want: "next to the control plane"},
		"a direct agent without a cluster":               {settings: installed(runnerspec.Kubernetes), direct: true, want: "does not say how"},
		"a registry password, which agents do not get":   {settings: append(installed(runnerspec.Docker), "runner_configuration.job.registry={username: u, password: p}"), want: "job.registry.password_file"},
		"secrets of a task without an image":             {settings: append(installed(runnerspec.AWSECS), "runner_configuration.job.secrets={A: 'arn:aws:ssm:eu-west-1:123456789012:parameter/a'}"), want: "job.image"},
		"a secret file of a task":                        {settings: append(installed(runnerspec.Local), "runner_configuration.job.secrets={A: /a}"), file: "{type: aws-ecs}", want: "Secrets Manager"},
	} {
		t.Run(name, func(t *testing.T) {
			f := runnerspec.NoAgentFile().Runner
			if tc.file != "" {
				f = fileOf(t, tc.file)
			}
			if _, err := launchconfig.Of(f, read(t, tc.settings).Runner, tc.direct); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
	// The control plane must not set a field of the agent's machine.
	sent := &runnerspec.DockerRunner{Common: runnerspec.Common{Type: runnerspec.Docker}, Job: runnerspec.DockerJob{HostData: "/etc"}}
	if _, err := launchconfig.Of(runnerspec.NoAgentFile().Runner, sent, false); err == nil || !strings.Contains(err.Error(), "runner_configuration.job.host_data") {
		t.Errorf("got error %v, want one that names job.host_data", err)
	}
}

// The error about each variable of earlier agents names an existing field.
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
				t.Errorf("the error about FAIRLEAD_%s%s does not name a field of the agent's file: %v", prefix, name, err)
			}
		}
	}
}

// An agent decodes a configuration with masked secrets. It refuses a configuration with an unknown field, such as one of a
// newer control plane.
func TestAgentDecodesAMaskedConfiguration(t *testing.T) {
	spec := read(t, append(installed(runnerspec.Docker), "runner_configuration.job.registry={username: u, password: hush}"))
	b, err := json.Marshal(spec.Masked().Runner)
	if err != nil || strings.Contains(string(b), "hush") {
		t.Fatalf("the masked configuration holds the secret, or fails: %s, %v", b, err)
	}
	r, err := runnerspec.DecodeRunner(b)
	if err != nil || r.(*runnerspec.DockerRunner).Job.Registry.Username != "u" {
		t.Errorf("DecodeRunner = %+v, %v", r, err)
	}
	newer := strings.Replace(string(b), `"type"`, `"sandbox":"gvisor","type"`, 1)
	if _, err := runnerspec.DecodeRunner([]byte(newer)); err == nil || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("got error %v, want one that names the unknown field", err)
	}
}

// The list of permitted images is the customer's: a control plane that sends another one is refused.
func TestOnlyTheAgentsFilePermitsImages(t *testing.T) {
	docker := runnerspec.Common{Type: runnerspec.Docker}
	file := &runnerspec.DockerRunner{Common: docker, Job: runnerspec.DockerJob{Image: "registry.example.com/runner:1", Images: []string{"registry.example.com/acme/*"}}}
	if s, err := launchconfig.Of(file, &runnerspec.DockerRunner{Common: docker}, false); err != nil || !slices.Equal(s.Images, file.Job.Images) {
		t.Errorf("the permitted images are %q (%v)", s.Images, err)
	}
	sent := &runnerspec.DockerRunner{Common: docker, Job: runnerspec.DockerJob{Images: []string{"registry.example.com/*"}}}
	if _, err := launchconfig.Of(file, sent, false); err == nil || !strings.Contains(err.Error(), "job.images") {
		t.Errorf("images of the control plane: %v", err)
	}
}
