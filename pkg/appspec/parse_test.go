package appspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/graph"
)

const shop = `fairlead: v1
name: shop
description: A shop with a database behind it.

inputs:
  replicas:
    type: number
    default: 2
  public:
    type: bool
    required: false
  zones:
    type: list(string)
    default: [a, b]
  db-password:
    sensitive: true

components:
  web:
    type: terraform
    source: ./modules/web
    depends_on: [cache]
    vars:
      name: ${install.name}-web
      replicas: ${inputs.replicas}
      database_url: ${components.database.outputs.url}
      settings:
        zones: ["${inputs.zones}", literal]
        template: $${kept}
  cache:
    type: terraform
    source: modules/cache/
  database:
    type: terraform
    source: ./modules/database
    vars:
      password: ${inputs.db-password}
`

func TestAppIsParsedAndResolved(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	if got, want := names(app), "inputs [db-password public replicas zones], components [cache database web]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	web, _ := app.Component("web")
	if fmt.Sprint(web.DependsOn) != "[cache database]" {
		t.Errorf("web depends on %v, want cache from depends_on and database from a reference", web.DependsOn)
	}
	if cache, _ := app.Component("cache"); cache.Source != "modules/cache" {
		t.Errorf("source %q", cache.Source)
	}
	waves, err := graph.Order(app.Graph())
	if err != nil || fmt.Sprint(waves) != "[[cache database] [web]]" {
		t.Errorf("waves %v, %v", waves, err)
	}

	inputs, err := app.CheckInputs(map[string]any{"replicas": 3.0, "db-password": "hush"})
	if err != nil {
		t.Fatal(err)
	}
	scope := appspec.Scope{
		Inputs:  inputs,
		Install: map[string]string{"name": "acme", "id": "ins_1", "app": "shop", "version": "ver_1"},
		Outputs: func(component, output string) (appspec.Resolved, bool) {
			return appspec.Resolved{Value: component + "/" + output, Sensitive: true}, component == "database" && output == "url"
		},
	}
	got := map[string]string{}
	for name, value := range web.Vars {
		v, sensitive, err := value.Resolve(scope)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = fmt.Sprintf("%s %t", data, sensitive)
	}
	for name, want := range map[string]string{
		"name":         `"acme-web" false`,
		"replicas":     `3 false`, // the number, not "3"
		"database_url": `"database/url" true`,
		"settings":     `{"template":"${kept}","zones":[["a","b"],"literal"]} false`,
	} {
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
}

func names(app *appspec.App) string {
	var inputs, components []string
	for _, in := range app.Inputs {
		inputs = append(inputs, in.Name)
	}
	for _, c := range app.Components {
		components = append(components, c.Name)
	}
	return fmt.Sprintf("inputs %v, components %v", inputs, components)
}

func TestRequiredFollowsFromTheDefault(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	for name, want := range map[string]bool{"replicas": false, "public": false, "db-password": true} {
		if in, _ := app.Input(name); in.Required != want {
			t.Errorf("%s: required is %t", name, in.Required)
		}
	}
}

// wrap returns an otherwise valid app with the lines, which begin in line 3.
func wrap(lines string) string {
	return "fairlead: v1\nname: shop\n" + lines
}

// inSandbox returns an app with a runner in its sandbox, of the kind.
func inSandbox(kind, component, deployedBy string) string {
	return wrap("inputs: {on: {type: bool, default: true}, key: {sensitive: true}}\nsandbox: #\n  kind: aws-eks\n  created_by: ground\n  runner:\n    deployed_by: " + deployedBy +
		"\n    configuration:\n      runner_configuration: {type: '" + kind + "'}\n      state_storage_configuration: {type: http}\n    trust: {issuer: 'https://x', claims: {sub: a}}\n" +
		"components:\n  " + component + "\n  ground: {type: terraform, source: ground}\n")
}

const component = "\n  web: {type: terraform, source: ./web}\n"

// badApp is a file with problems. want has an entry "line:column code" for each,
// followed by a colon and a part of its message or hint.
type badApp struct {
	src  string
	want []string
}

func badApps() map[string]badApp {
	return map[string]badApp{
		"an empty file": {"", []string{"1:1 missing-field: fairlead: v1", "1:1 missing-field: name", "1:1 missing-field: components"}},
		"only comments": {"# soon\n", []string{"1:1 missing-field", "1:1 missing-field", "1:1 missing-field"}},
		"a list":        {"- a\n", []string{"1:1 wrong-type: the file must be a map, not a list"}},
		"a text":        {"hello", []string{"1:1 wrong-type: not a string"}},
		"all fields misspelt": {
			"fairlaed: v1\nnme: shop\nvariables: {}\ncomponent:" + component,
			[]string{
				`1:1 unknown-field: "fairlead"`, `2:1 unknown-field: "name"`,
				`3:1 unknown-field: "inputs"`, `4:1 unknown-field: "components"`,
			},
		},
		"a git source that no build can fetch": {
			"fairlead: v1\nname: a\ncomponents:\n" +
				"  a: {type: script, source: ., git: {url: 'git@github.com:acme/x.git', ref: v1}}\n" +
				"  b: {type: script, source: ., git: {url: 'http://git.example.com/x', ref: v1}}\n" +
				"  c: {type: script, source: ., git: {url: 'https://user:hush@git.example.com/x', ref: v1}}\n" +
				"  d: {type: script, source: ., git: {url: 'https://git.example.com/x?ref=v1', ref: '--upload-pack=x'}}\n" +
				"  e: {type: script, source: ../x, git: {url: 'https://git.example.com/x', ref: a..b, credentials: var.token}}\n" +
				"  f: {type: script, source: ., git: {url: 'https://git.example.com/x'}}\n" +
				"  g: {type: script, source: ., git: {url: 'http://127.0.0.1:8080/x', ref: release/2026-11}}\n",
			[]string{
				"4:43 invalid-git-url: is not a URL", "5:43 invalid-git-url: must have an https URL",
				"6:43 invalid-git-url: has a user name or password", "7:43 invalid-git-url: has a query", `7:84 invalid-git-ref: "--upload-pack=x"`,
				"8:29 invalid-source: leaves the repository", `8:80 invalid-git-ref: "a..b"`, `8:99 invalid-name: "var.token"`, "9:37 missing-field: ref",
			},
		},
		"images that are not named by their digest": {
			"fairlead: v1\nname: a\ninputs: {image: {}}\nrunner: {kinds: [docker, local]}\ncomponents:\n" +
				"  a: {type: script, source: ., image: 'registry.example.com/tools:1'}\n" +
				"  b: {type: script, source: ., image: 'registry.example.com/tools:1" + image[strings.Index(image, "@"):] + "'}\n" +
				"  c: {type: script, source: ., image: 'tools" + image[strings.Index(image, "@"):] + "'}\n" +
				"  d: {type: script, source: ., image: '${inputs.image}'}\n" +
				"  e: {type: script, source: ., image: '${components.d.outputs.reference}'}\n" +
				"  f: {type: script, source: ., image: 'registry.example.com/${components.i.outputs.reference}'}\n" +
				"  g: {type: terraform, source: ., image: '" + image + "'}\n" +
				"  h: {type: script, source: ., image: 3}\n" +
				"  i: {type: image, source: ., depends_on: [j]}\n" +
				"  j: {type: script, source: ., image: '${components.i.outputs.reference}'}\n" +
				"  k: {type: script, source: ., image: '${components.none.outputs.reference}'}\n" +
				"  l: {type: script, source: ., image: '" + image + "'}\n" +
				"actions:\n  m: {type: script, source: ., image: 'localhost:5000/tools'}\n",
			[]string{`4:26 runner-without-images: kind local`, "6:39 image-not-by-digest: Write its digest: registry.example.com/tools@sha256:…", "7:39 image-not-by-digest: Remove the tag", "8:39 invalid-image: docker.io",
				"9:40 image-not-by-digest: inputs.image", "10:40 image-not-by-digest: components.d", "11:39 invalid-image: whole value", "12:42 no-own-image: script", "13:39 wrong-type: text",
				"14:44 cycle: ", "16:40 unknown-reference: none", "19:39 image-not-by-digest: localhost:5000/tools@sha256:…"},
		},
		"environment variables that no tool can get": {
			"fairlead: v1\nname: a\ninputs:\n  zones: {type: list, default: []}\ncomponents:\n" +
				"  a:\n    type: script\n    source: .\n    secrets: [TOKEN]\n    env: {1A: x, TF_LOG: x, FAIRLEAD_URL: x, TOKEN: x, LIST: [a], ZONE: \"${inputs.zone}\", GOOD: 3, \"ON\": true}\n",
			[]string{`10:11 invalid-name: "1A"`, `10:18 reserved-name: "TF_LOG"`, `10:29 reserved-name: "FAIRLEAD_URL"`, `10:46 duplicate-name: "TOKEN"`, `10:56 wrong-type: a text, a number or a bool`, `10:74 unknown-reference: inputs.zone`},
		},
		"a chart that no build can fetch": {
			"fairlead: v1\nname: a\ncomponents:\n" +
				"  a: {type: helm, chart: {url: 'http://charts.example.com', name: web, version: 1.2.3}}\n" +
				"  b: {type: helm, chart: {url: 'https://charts.example.com', version: '>=1.0'}}\n" +
				"  c: {type: helm, chart: {url: 'oci://ghcr.io/acme/web:1.2.3', version: 1.2.3}}\n" +
				"  d: {type: helm, chart: {url: 'oci://ghcr.io/acme/web', name: web, version: 1.2.3}}\n" +
				"  e: {type: script, chart: {url: 'https://charts.example.com', name: web, version: 1.2.3}}\n" +
				"  f: {type: helm, source: ., git: {url: 'https://git.example.com/x', ref: v1}, chart: {url: 'https://charts.example.com', name: web, version: 1.2.3}}\n" +
				"  g: {type: helm}\n" +
				"  h: {type: helm, chart: {url: 'https://charts.example.com', name: web, version: v1.19.1}}\n" +
				"  i: {type: helm, chart: {url: 'https://charts.example.com?v=1', name: web, version: 1.2.3}}\n",
			[]string{
				"4:32 invalid-chart-url: https URL", "5:26 missing-field: name of the chart", `5:71 invalid-chart-version: ">=1.0"`,
				"6:32 invalid-chart-url: registry", "7:64 invalid-chart-url: named twice", "8:28 not-a-chart: type script", "9:87 two-origins: ", `10:3 missing-field: "source"`,
				"12:32 invalid-chart-url: under chart.version",
			},
		},
		"a module that no build can fetch": {
			"fairlead: v1\nname: a\ncomponents:\n" +
				"  a: {type: terraform, module: {source: ./vpc, version: 1.2.3}}\n" +
				"  b: {type: terraform, module: {source: terraform-aws-modules/vpc/aws, version: '~> 5.0'}}\n" +
				"  c: {type: terraform, module: {source: terraform-aws-modules/iam/aws//modules/user, version: 1.2.3}}\n" +
				"  d: {type: script, module: {source: a/b/c, version: 1.2.3}}\n" +
				"  e: {type: terraform, module: {source: a/b/c, version: 1.2.3}, git: {url: 'https://git.example.com/x', ref: v1}}\n" +
				"  f: {type: terraform, module: {source: a/b/c, version: 1.2.3, credentials: var.token}}\n" +
				"  g: {type: terraform, module: {source: 'git::https://git.example.com/x', version: 1.2.3}}\n" +
				"  h: {type: terraform, source: ../x, module: {source: a/b/c, version: 1.2.3}}\n" +
				"  i: {type: terraform, source: ./modules/user, module: {source: registry.example.com/a/b/c, version: 1.2.3-rc.1}}\n" +
				"  j: {type: terraform, module: {source: a/b/c}}\n",
			[]string{
				`4:41 invalid-module-address: "./vpc"`, `5:81 invalid-module-version: "~> 5.0"`, "6:41 invalid-module-address: folder", "7:29 not-a-module: type script",
				"8:32 two-origins: ", `9:77 invalid-name: "var.token"`, "10:41 invalid-module-address: use git", "11:32 invalid-source: leaves the repository", "13:32 missing-field: version",
			},
		},
		"an OCI artifact that no build can fetch": {
			"fairlead: v1\nname: a\ncomponents:\n" +
				"  a: {type: plugin, oci: {url: 'https://ghcr.io/acme/x', digest: 'sha256:" + strings.Repeat("0", 64) + "'}}\n" +
				"  b: {type: plugin, oci: {url: 'oci://ghcr.io/acme/x:v1', digest: 'sha256:" + strings.Repeat("0", 64) + "'}}\n" +
				"  c: {type: plugin, oci: {url: 'oci://ghcr.io/acme/x', digest: v1}}\n" +
				"  d: {type: plugin, oci: {url: 'oci://ghcr.io/acme/x'}}\n" +
				"  e: {type: plugin, source: ., git: {url: 'https://git.example.com/x', ref: v1}, oci: {url: 'oci://ghcr.io/acme/x', digest: 'sha256:" + strings.Repeat("0", 64) + "'}}\n" +
				"  f: {type: plugin, oci: {url: 'oci://ghcr.io/acme/x', digest: 'sha256:" + strings.Repeat("0", 64) + "', credentials: var.token}}\n" +
				"  g: {type: script, source: ./g, oci: {url: 'oci://localhost:5000/acme/x', digest: 'sha256:" + strings.Repeat("0", 64) + "', credentials: TOKEN}}\n",
			[]string{
				"4:32 invalid-oci-url: oci://HOST", "5:32 invalid-oci-url: oci://HOST", `6:64 invalid-digest: "v1"`, "7:26 missing-field: digest",
				"8:87 two-origins: git and oci", `9:152 invalid-name: "var.token"`,
			},
		},
		"another version":  {"fairlead: v2\nname: a\ncomponents:" + component, []string{`1:11 unknown-version: "v2"`}},
		"version a number": {"fairlead: 1\nname: a\ncomponents:" + component, []string{`1:11 unknown-version: 1`}},
		"name a number":    {"fairlead: v1\nname: 7\ncomponents:" + component, []string{`2:7 wrong-type: quotes`}},
		"an invalid name":  {"fairlead: v1\nname: My_Shop\ncomponents:" + component, []string{`2:7 invalid-name: "my-shop"`}},
		"no component":     {wrap("components: {}\n"), []string{"3:13 empty-app"}},
		"null components":  {wrap("components:\n"), []string{"3:1 empty-app"}},
		"components as a list": {
			wrap("components:\n  - name: web\n"), []string{"4:3 wrong-type: as a key"},
		},
		"an empty component": {
			wrap("components:\n  web:\n"), []string{"4:3 missing-field: type", "4:3 missing-field: source"},
		},
		"fields and names given twice": {
			wrap("name: again\ncomponents:" + component + "  web: {}\ninputs:\n  a: {type: string, type: number}\n  a:\n"),
			[]string{"3:1 duplicate-key: line 2", "6:3 duplicate-name: line 5", "8:21 duplicate-key", "9:3 duplicate-name"},
		},
		"a component of another type": {
			wrap("components:\n  web:\n    type: chart\n    source: ./web\n"), []string{"5:11 unknown-type: terraform"},
		},
		"sources outside the app's folder": {
			wrap("components:\n  a: {type: terraform, source: ../x}\n  b: {type: terraform, source: /x}\n" +
				"  c: {type: terraform, source: 'git::https://x'}\n  d: {type: terraform, source: 'a\\b'}\n" +
				"  e: {type: terraform, source: ''}\n  f: {type: terraform, source: a/../../x}\n  g: {type: terraform, source: '${inputs.x}'}\n"),
			[]string{
				"4:32 invalid-source: leaves", "5:32 invalid-source", "6:32 invalid-source: not a local folder", "7:32 invalid-source",
				"8:32 invalid-source: is empty", "9:32 invalid-source: leaves", "10:32 invalid-source: reference",
			},
		},
		"sizes that no task on Fargate has": {
			wrap("components:\n  a: {type: terraform, source: a, job: {cpu: 3, memory: 6Gi}}\n  b: {type: terraform, source: b, job: {cpu: 2, memory: 2Gi}}\n" +
				"  c: {type: terraform, source: c, job: {cpu: 2}}\n  d: {type: terraform, source: d, job: {cpu: much, memory: 4Gi}}\n  e: {type: terraform, source: e, job: {cpu: 2, memory: 4Gi, disk: 1Gi}}\n"),
			[]string{"4:46 invalid-value: 250m, 500m, 1", "5:57 invalid-value: 4Gi to 16Gi", "6:40 missing-field: memory", "7:46 invalid-value: 500m", "8:62 unknown-field: disk"},
		},
		"secrets of the customer that no job can get": {
			wrap("components:\n  a: {type: terraform, source: a, vars: {size: 1}, secrets: [var.size, TF_LOG, FAIRLEAD_JOB, b/var.x, var.a-b, TOKEN, var.password, 3]}\n"),
			[]string{"4:62 duplicate-name: size", "4:72 reserved-name: var.NAME", "4:80 reserved-name", "4:94 invalid-name", "4:103 invalid-name", "4:133 wrong-type"},
		},
		"secrets of the customer with misspelt names": {
			wrap("components:\n  a:\n    type: terraform\n    source: a\n    secrets: [vars.password, var-token]\n  b: {type: terraform, source: b, secret: [TOKEN]}\n"),
			[]string{`7:15 invalid-name: Did you mean "var.password"`, "7:30 invalid-name: Use var.NAME", `8:35 unknown-field: Did you mean "secrets"`},
		},
		"dependencies on nothing, on itself, twice": {
			wrap("components:\n  web:\n    type: terraform\n    source: web\n    depends_on: [wbe, web, dbx, dbx, 3]\n  db: {type: terraform, source: db, depends_on: web}\n"),
			[]string{`7:18 unknown-reference: Did you mean "web"`, "7:23 self-reference", `7:28 unknown-reference: "db"`, "7:33 duplicate-name", "7:38 wrong-type", "8:49 wrong-type: [ ]"},
		},
		"services and actions that no stack grants": {
			wrap("aws:\n  services: [iam, s3, S3, sts, '*']\n  actions:\n    - s3:Get*\n    - iam:PassRole\n    - '*'\n    - organizations:*\n    - sso-directory:*\n    - lambda\n    - 7\ncomponents:" + component),
			[]string{
				"4:14 invalid-aws-service: iam", "4:23 invalid-aws-service: prefix", "4:27 invalid-aws-service: sts", "4:32 invalid-aws-service",
				"7:7 invalid-aws-action: iam", "8:7 invalid-aws-action: SERVICE:ACTION", "9:7 invalid-aws-action: organizations", "10:7 invalid-aws-action: sso-directory", "11:7 invalid-aws-action", "12:7 wrong-type",
			},
		},
		"fields of aws misspelt": {
			wrap("aws: {service: [s3], permissions: ['s3:*']}\ncomponents:" + component), []string{`3:7 unknown-field: "services"`, `3:22 unknown-field: "actions"`},
		},
		"more actions than a boundary holds": {
			wrap("aws:\n  actions: [lambda:" + strings.Repeat("A", awsaction.MaxSize) + "]\ncomponents:" + component), []string{"4:3 too-many-actions: 440"},
		},
		"a cycle through a reference and a dependency": {
			wrap("components:\n  a:\n    type: terraform\n    source: a\n    vars: {x: \"${components.c.outputs.x}\"}\n" +
				"  b: {type: terraform, source: b, depends_on: [a]}\n  c: {type: terraform, source: c, depends_on: [b]}\n"),
			[]string{"7:16 cycle: a -> c -> b -> a"},
		},
		"two cycles": {
			wrap("components:\n  a: {type: terraform, source: a, depends_on: [b]}\n  b: {type: terraform, source: b, depends_on: [a]}\n" +
				"  c: {type: terraform, source: a, depends_on: [d]}\n  d: {type: terraform, source: b, depends_on: [c]}\n"),
			[]string{"4:48 cycle: a -> b -> a", "6:48 cycle: c -> d -> c"},
		},
		"references to nothing": {
			wrap("inputs:\n  size: {type: number}\ncomponents:\n  web:\n    type: terraform\n    source: ./web\n    vars:\n" +
				"      a: ${inputs.sise}\n      b: 'x ${inputs.size} y ${install.nam}'\n      c: [1, {k: \"${components.wbe.outputs.x}\"}]\n" +
				"      d: ${components.web.outputs.x}\n      e: |\n        line\n        more ${inputs.nope}\n      f: ${inputs.size.deep}\n"),
			[]string{
				`10:10 unknown-reference: Did you mean "size"`, `11:30 unknown-reference: Did you mean "name"`, `12:19 unknown-reference: Did you mean "web"`,
				"13:10 self-reference", "16:14 unknown-reference", "17:10 wrong-type",
			},
		},
		"invalid references": {
			wrap("components:\n  web:\n    type: terraform\n    source: ./web\n    vars:\n" +
				"      a: ${var.size}\n      b: ${{ inputs.size }}\n      c: ${size}\n      d: ${inputs.a + 1}\n      e: ${inputs.a\n" +
				"      f: ${components.db.url}\n      g: ${}\n      h: ${inputs.}\n      i: ${upper(inputs.a)}\n      j: ${inputs}\n      k: ${inputs.A_b}\n" +
				"      l: ok ${input.a} and ${components.db.output.x}\n      ${m}: 1\n      n: {\"${inputs.a}\": 1}\n"),
			[]string{
				"8:10 invalid-reference: ${inputs.size}", "9:10 invalid-reference: one opening brace", "10:10 invalid-reference: unknown name", "11:10 invalid-reference: no operators",
				"12:10 invalid-reference: not closed", "13:10 invalid-reference: ${components.db.outputs.url}", "14:10 invalid-reference: names nothing",
				"15:10 invalid-reference: missing", "16:10 invalid-reference: Functions", "17:10 invalid-reference: incomplete", "18:10 invalid-reference: not a valid name",
				`19:13 invalid-reference: "inputs"`, "19:28 invalid-reference: ${components.db.outputs.OUTPUT}", "20:7 invalid-name", "21:11 invalid-reference: key",
			},
		},
		"options that the type does not have, of another kind, or that would show a secret": {
			wrap("inputs:\n  key: {sensitive: true}\n  size: {type: number}\ncomponents:\n  web:\n    type: helm\n    source: ./web\n    options:\n" +
				"      namespase: shop\n      release: 3\n      timeout: soon\n      rollback: 'yes'\n      namespace: ns-${inputs.key}\n" +
				"  db:\n    type: terraform\n    source: ./db\n    options: {size: 1}\n" +
				"  dns:\n    type: plugin\n    source: ./dns\n    options: {zone: {a: 1}, k: '${inputs.nothing}'}\n"),
			[]string{
				`11:7 unknown-option: "namespace"`, "12:7 wrong-type: a text", "13:7 wrong-type: a duration", "14:7 wrong-type: true or false", "15:21 sensitive-option: vars",
				"19:15 unknown-option: no options", "23:33 unknown-reference",
			},
		},
		"includes that are no list of texts": {
			wrap("include: ./inputs.yaml\ncomponents:" + component), []string{"3:10 wrong-type: a list"},
		},
		"a file without a folder includes another": {
			wrap("include: [./inputs.yaml, 7]\ncomponents:" + component), []string{"3:11 invalid-include: folder", "3:26 wrong-type"},
		},
		"groups of inputs that do not exist": {
			wrap("input_groups:\n  network: {title: Network, order: 1}\ninputs:\n  cidr: {group: netwrok}\n  size: {group: network}\ncomponents:" + component),
			[]string{`6:17 unknown-reference: Did you mean "network"`},
		},
		"groups of inputs with wrong fields": {
			wrap("input_groups:\n  Network: {title: " + strings.Repeat("x", 101) + ", order: first, color: red}\n  b: {order: 1.5}\ncomponents:" + component),
			[]string{`4:3 invalid-name: "network"`, "4:20 too-long", "4:130 wrong-type: whole number", "4:137 unknown-field", "5:14 wrong-type"},
		},
		"inputs that neither vendor nor customer gives": {
			wrap("inputs:\n  a: {from: operator}\n  b: {from: Customer}\n  c: {from: vendor}\n  d: {from: customer}\ncomponents:" + component),
			[]string{"4:13 invalid-from: vendor or customer", "5:13 invalid-from"},
		},
		"kinds of runners that do not exist": {
			wrap("runner: {kinds: [kubernetes, ecs, k8s, 3]}\ncomponents:" + component),
			[]string{"3:30 unknown-runner-kind: aws-ecs", "3:35 unknown-runner-kind", "3:40 wrong-type"},
		},
		"generated inputs that are no secrets, are too short, or have another source": {
			wrap("inputs:\n  a: {generate: 32}\n  b: {generate: 8, sensitive: true}\n  c: {generate: 32, sensitive: true, type: number}\n  d: {generate: 32, sensitive: true, required: true}\n" +
				"  e: {generate: 32, sensitive: true, from: customer}\n  f: {generate: yes, sensitive: true}\n  g: {generate: 32, sensitive: true, default: x}\ncomponents:" + component),
			[]string{"4:17 invalid-generate: sensitive: true", "5:17 invalid-generate: 16 to 128", "6:17 invalid-generate: sensitive text", "7:17 invalid-generate: required", "8:17 invalid-generate: customer", "9:17 wrong-type", "10:17 invalid-generate: default"},
		},
		"a role that no apply has": {
			wrap("components:\n  web: {type: script, source: ./web, role: deprovision}\n"), []string{"4:44 unknown-role: provision"},
		},
		"a kind of sandbox that does not exist": {
			wrap("sandbox: {kind: eks, created_by: web}\ncomponents:" + component), []string{"3:17 unknown-sandbox-kind: aws-eks"},
		},
		"a sandbox without a kind": {
			wrap("sandbox: {created_by: web}\ncomponents:" + component), []string{"3:10 missing-field"},
		},
		"a sandbox that nothing creates": {
			wrap("sandbox: {kind: kubernetes}\ncomponents:" + component), []string{"3:10 invalid-sandbox: created_by: COMPONENT"},
		},
		"a sandbox that is created and given": {
			wrap("sandbox: {kind: kubernetes, created_by: web, given: {host: a}}\ncomponents:" + component), []string{"3:10 invalid-sandbox: either"},
		},
		"a sandbox of a component that does not exist": {
			wrap("sandbox: {kind: kubernetes, created_by: wen}\ncomponents:" + component), []string{"3:41 unknown-reference: web"},
		},
		"a sandbox that a script creates": {
			wrap("sandbox: {kind: kubernetes, created_by: a}\ncomponents:\n  a: {type: script, source: a}\n"), []string{"3:41 invalid-sandbox: of type script"},
		},
		"a sandbox that an input switches off": {
			wrap("inputs: {on: {type: bool, default: true}}\nsandbox: {kind: kubernetes, created_by: a}\ncomponents:\n  a: {type: terraform, source: a, enabled: '${inputs.on}'}\n"),
			[]string{"6:44 invalid-sandbox: switched off"},
		},
		"a sandbox that needs what comes after it": {
			wrap("sandbox: {kind: kubernetes, created_by: a}\ncomponents:\n  a: {type: terraform, source: a, depends_on: [b], vars: {x: '${components.c.outputs.y}', z: '${sandbox.outputs.z}'}}\n" +
				"  b: {type: script, source: b}\n  c: {type: script, source: c}\n"),
			[]string{"5:48 sandbox-needs-component: cannot need \"b\"", "5:63 sandbox-needs-component: cannot need \"c\"", "5:95 self-reference"},
		},
		"a given output that a component would give": {
			wrap("sandbox: {kind: kubernetes, given: {a: '${components.web.outputs.x}', b: '${inputs.no}', c: '${sandbox.outputs.a}'}}\ncomponents:" + component),
			[]string{"3:41 sandbox-needs-component", "3:75 unknown-reference: inputs", "3:94 sandbox-needs-component"},
		},
		"an output that the sandbox is not given": {
			wrap("sandbox: {kind: kubernetes, given: {host: a}}\ncomponents:\n  w: {type: script, source: w, vars: {h: 'x ${sandbox.outputs.hots}', i: '${sandbox.outputs.host.a}'}}\n"),
			[]string{"5:45 unknown-reference: host", "5:75 wrong-type"},
		},
		"a map of the sandbox in a text": {
			wrap("sandbox: {kind: kubernetes, given: {host: {a: b}}}\ncomponents:\n  w: {type: script, source: w, vars: {h: 'x ${sandbox.outputs.host}'}}\n"),
			[]string{"5:45 not-a-scalar: is a map"},
		},
		"a sandbox that the app does not have": {
			wrap("components:\n  w: {type: script, source: w, vars: {h: '${sandbox.outputs.host}', i: '${sandbox.host}'}}\n"),
			[]string{"4:43 unknown-reference: the app has none", "4:73 invalid-reference: ${sandbox.outputs.OUTPUT}"},
		},
		"a runner in the sandbox that nothing deploys": {
			inSandbox("aws-eks", "agent: {type: helm, source: agent}", "agnet"), []string{"8:18 unknown-reference: agent"},
		},
		"a runner in the sandbox that a script deploys": {
			inSandbox("aws-eks", "agent: {type: script, source: agent}", "agent"), []string{"8:18 invalid-sandbox: of type script"},
		},
		"a runner in the sandbox of another platform": {
			inSandbox("azure-aks", "agent: {type: helm, source: agent}", "agent"), []string{"10:7 runner-not-on-sandbox: another platform"},
		},
		"a runner in the sandbox of no kind": {
			inSandbox("k8s", "agent: {type: helm, source: agent}", "agent"), []string{"10:7 unknown-runner-kind"},
		},
		"a runner in the sandbox that an input switches off": {
			inSandbox("aws-eks", "agent: {type: helm, source: agent, enabled: '${inputs.on}'}", "agent"), []string{"14:47 invalid-sandbox: cannot be switched off"},
		},
		"a runner in the sandbox that shows a secret or what comes after it": {
			inSandbox("aws-eks', x: '${inputs.key}', y: '${components.web.outputs.z}", "agent: {type: helm, source: agent}\n  web: {type: script, source: w}", "agent"),
			[]string{"10:51 invalid-sandbox: is sensitive", "10:71 sandbox-needs-component: facts of the install"},
		},
		"a runner that cannot run on the sandbox": {
			wrap("runner: {kinds: [azure-aks, aws-ecs]}\nsandbox: {kind: aws-eks, created_by: web}\ncomponents:" + component), []string{"3:18 runner-not-on-sandbox: aws-eks"},
		},
		"an action before the sandbox that needs what comes after it": {
			wrap("sandbox: {kind: kubernetes, created_by: a}\ncomponents:\n  a: {type: terraform, source: a}\n  b: {type: script, source: b}\n" +
				"actions:\n  x: {type: script, source: x, before: [a.apply], vars: {y: '${components.b.outputs.z}'}}\n"),
			[]string{"8:41 cycle: a -> actions.x -> b -> a"},
		},
		"a runner without kinds": {
			wrap("runner: {kind: kubernetes}\ncomponents:" + component), []string{`3:10 unknown-field: "kinds"`},
		},
		"an empty list of kinds": {
			wrap("runner: {kinds: []}\ncomponents:" + component), []string{`3:17 missing-field`},
		},
		"switches that are no bool input": {
			wrap("inputs:\n  on: {type: bool, default: true}\n  size: {type: number, default: 1}\n  key: {type: bool, default: true, sensitive: true}\n  maybe: {type: bool, required: false}\ncomponents:\n" +
				"  a: {type: script, source: a, enabled: '${inputs.no}'}\n  b: {type: script, source: a, enabled: '${inputs.size}'}\n  c: {type: script, source: a, enabled: '${inputs.key}'}\n" +
				"  d: {type: script, source: a, enabled: '${inputs.maybe}'}\n"),
			[]string{`9:41 unknown-reference: "on"`, "10:41 invalid-switch: is a number", "11:41 invalid-switch: is sensitive", "12:41 invalid-switch: can be null"},
		},
		"switches that are no reference to an input": {
			wrap("inputs:\n  on: {type: bool, default: true}\ncomponents:\n  a: {type: script, source: a, enabled: true}\n  b: {type: script, source: a, enabled: 'true'}\n  c: {type: script, source: a, enabled: '!${inputs.on}'}\n" +
				"  d: {type: script, source: a, enabled: '${install.name}'}\n  e: {type: script, source: a, enabled: '${inputs.on.x}'}\n  f: {type: script, source: a, enabled: '${inputs.on'}\n  g: {type: script, source: a, when: '${inputs.on}'}\n"),
			[]string{"6:41 wrong-type", "7:41 invalid-switch: ${inputs.monitoring}", "8:41 invalid-switch", "9:41 invalid-switch", "10:41 invalid-switch", "11:41 invalid-switch", `12:32 unknown-field: "enabled"`},
		},
		"references to components that may be off": {
			wrap("inputs:\n  on: {type: bool, default: true}\n  off: {type: bool, default: false}\ncomponents:\n  a: {type: script, source: a, enabled: '${inputs.on}', vars: {x: '${components.c.outputs.y}'}}\n" +
				"  b: {type: script, source: a, vars: {x: '${components.a.outputs.y}'}}\n  c: {type: script, source: a}\n  d: {type: plugin, source: a, enabled: '${inputs.off}', options: {x: '${components.a.outputs.y}'}}\n"),
			[]string{"8:43 switched-reference: same input", "10:72 switched-reference: ${inputs.on}"},
		},
		"a list in a text": {
			wrap("inputs:\n  zones: {type: list(string)}\n  tags: {type: map(list)}\ncomponents:\n  web:\n    type: terraform\n    source: ./web\n    vars:\n" +
				"      a: zones ${inputs.zones}\n      b: zone ${inputs.zones[0]} ${inputs.tags.x}\n"),
			[]string{"11:16 not-a-scalar: a list(string)", "12:34 not-a-scalar: a list"},
		},
		"contradictory inputs": {
			wrap("inputs:\n  a: {type: number, default: '3'}\n  b: {required: true, default: x}\n  c: {default: ~}\n  d: {type: list(string), default: [x, 1]}\n" +
				"  e: {type: integer}\n  f: {type: password}\n  g: {default: '${inputs.a}'}\n  h: {type: bool, default: yes}\n  i: number\n  j: {required: 1, sensitive: no, secret: true}\n" +
				"  k_l: {}\n  m: {type: [string]}\n  n: {type: 'list(list(list(list(list(list(list(list(string))))))))'}\ncomponents:" + component),
			[]string{
				"4:30 wrong-type: without quotes", "5:17 required-with-default", "6:7 wrong-type: required: false", "7:36 wrong-type: got a number at [1]",
				`8:13 unknown-type: Write "number"`, "9:13 unknown-type: sensitive: true", "10:17 reference-in-default", "11:28 wrong-type: true or false",
				"12:6 wrong-type: must be a map", "13:17 wrong-type", "13:31 wrong-type", `13:35 unknown-field: "sensitive"`,
				`14:3 invalid-name: "k-l"`, "15:13 wrong-type", "16:13 unknown-type",
			},
		},
		"invalid YAML":                {"a: [1, 2\nb: 3\n", []string{"2:1 malformed-yaml"}},
		"tabs":                        {"name:\n\tx: 1\n", []string{"2:1 malformed-yaml: spaces"}},
		"a reference in [ ] unquoted": {wrap("components: [${inputs.x}]\n"), []string{"3:15 malformed-yaml: needs quotes"}},
		"two documents":               {wrap("components:" + component + "---\na: 1\n"), []string{"6:1 malformed-yaml: more than one"}},
		"latin-1":                     {"name: caf\xe9\n", []string{"1:10 malformed-yaml: UTF-8"}},
		"a terminal's escape":         {"name: a\x1b[2Jb\n", []string{"1:8 malformed-yaml: U+001B"}},
		"anchors, aliases, merges, tags, complex keys": {
			"a: &x 1\nb: *x\n<<: *x\nc: !!str 1\n? d\n: 1\n",
			[]string{"1:4 unsupported-yaml: anchors", "2:4 unsupported-yaml: aliases", "3:1 unsupported-yaml: merge", "3:5 unsupported-yaml", "4:4 unsupported-yaml: tags", "5:1 unsupported-yaml"},
		},
		"unsupported numbers": {
			wrap("components:\n  web:\n    type: terraform\n    source: ./web\n    vars:\n      a: .inf\n      b: 012345678901\n      c: 1e999999999\n      d: " + strings.Repeat("9", 151) + "\n"),
			[]string{"8:10 unsupported-yaml", `9:10 unsupported-yaml: "012345678901"`, "10:10 unsupported-yaml", "11:10 unsupported-yaml"},
		},
		"text from the file cannot command a terminal": {
			"fairlead: v1\n\"na\\e[31mme\": x\nname: \"\\e]0;x\\a\"\ncomponents:" + component,
			[]string{`2:1 unknown-field: "na\x1b[31mme"`, `3:7 invalid-name: "\x1b]0;x\a"`},
		},
	}
}

func TestEveryProblemIsReportedWithItsPlace(t *testing.T) {
	for name, c := range badApps() {
		t.Run(name, func(t *testing.T) {
			app, problems := appspec.Parse("app.yaml", []byte(c.src))
			if app != nil {
				t.Error("Parse returns an app with problems")
			}
			for i, p := range problems {
				if i < len(c.want) {
					where, text, _ := strings.Cut(c.want[i], ": ")
					if got := fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Code); got == where && strings.Contains(p.Message+" "+p.Hint, text) && p.File == "app.yaml" {
						continue
					}
				}
				t.Errorf("problem %d: %v", i, p)
			}
			if len(problems) != len(c.want) {
				t.Errorf("got %d problems, want %q", len(problems), c.want)
			}
		})
	}
}

func TestProblemsWrapIntoOneError(t *testing.T) {
	if err := (appspec.Problems{}).Err(); err != nil {
		t.Errorf("Err of no problems: %v", err)
	}
	_, problems := appspec.Parse("dir/app.yaml", []byte("fairlead: v1\nname: a\ncomponents: {}\n"))
	err := problems.Err()
	if fairlead.KindOf(err) != fairlead.KindInvalid || fairlead.CodeOf(err) != "invalid-app" {
		t.Errorf("got %v", err)
	}
	if got, ok := errors.AsType[appspec.Problems](err); !ok || len(got) != 1 {
		t.Errorf("got %v", got)
	}
	if want := "dir/app.yaml:3:13: the app has no component [empty-app]"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %q", err)
	}
}

func TestByteOrderMarkAndCRLFAreIgnored(t *testing.T) {
	want, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	got, problems := appspec.Parse("app.yaml", []byte("\ufeff"+strings.ReplaceAll(shop, "\n", "\r\n")))
	if problems != nil {
		t.Fatal(problems)
	}
	if a, b := canonical(t, want), canonical(t, got); a != b {
		t.Errorf("got %s, want %s", b, a)
	}
}

func canonical(t testing.TB, app *appspec.App) string {
	t.Helper()
	data, err := app.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
