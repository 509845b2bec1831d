package infratest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tools/iamsimulator"
	"github.com/fairlead/fairlead/tools/testserver"
)

// toolsFolder pins the packages that the tests download.
const toolsFolder = "../../tools/infra"

// checker is a program that checks the templates.
type checker struct {
	name       string // "cfn-lint"
	requireEnv string // if this variable is "1", the test fails instead of being skipped
	needs      string // the software that a person must install
}

func cfnLint() checker { return checker{"cfn-lint", "FAIRLEAD_REQUIRE_CFN_LINT", "Python 3 with pip"} }
func checkov() checker { return checker{"checkov", "FAIRLEAD_REQUIRE_CHECKOV", "Python 3.11 with pip"} }
func cfnGuard() checker {
	return checker{"cfn-guard", "FAIRLEAD_REQUIRE_CFN_GUARD", "Node with npm"}
}

// missing skips the test, or fails it if the environment requires the checker.
func (c checker) missing(t *testing.T, err error) {
	t.Helper()
	testserver.Missing(t, "NOT CHECKED with "+c.name, c.requireEnv, "Install "+c.needs, err)
}

// fetch returns a folder in the user's cache. The function fill writes the folder's
// content. The folder appears only when it is complete. If several processes fill
// it, the first complete folder stays. If fill fails, the test is skipped, or fails
// if the environment requires c.
func fetch(t *testing.T, c checker, kind string, pins []string, fill func(ctx context.Context, folder string) error) string {
	t.Helper()
	h := sha256.New()
	for _, pin := range pins {
		b, err := os.ReadFile(filepath.Join(toolsFolder, pin))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		c.missing(t, err)
	}
	parent := filepath.Join(cache, "fairlead-infra")
	folder := filepath.Join(parent, kind+"-"+hex.EncodeToString(h.Sum(nil))[:16])
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		c.missing(t, err)
	}
	temp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := fill(ctx, temp); err != nil {
		c.missing(t, fmt.Errorf("fetch it: %w", err))
	}
	if err := os.Rename(temp, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(folder); statErr != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func command(ctx context.Context, folder, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, tail(out))
	}
	return nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-1000):] }

// node returns the folder with the npm packages of tools/infra, for the checker c.
func node(t *testing.T, c checker) string {
	t.Helper()
	pins := []string{"package.json", "package-lock.json"}
	return fetch(t, c, "node", pins, func(ctx context.Context, folder string) error {
		for _, pin := range pins {
			b, err := os.ReadFile(filepath.Join(toolsFolder, pin))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, pin), b, 0o644); err != nil {
				return err
			}
		}
		// --ignore-scripts: the installation must not run code of the packages.
		return command(ctx, folder, "npm", "ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund")
	})
}

// Lint runs cfn-lint on the template, for two regions with different services, with errors, warnings and
// informational findings. argued is as for argue.
func Lint(t *testing.T, template Template, argued map[string]string) {
	t.Helper()
	folder := linter(t)
	cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(folder, "packages", "bin", "cfn-lint"), "--format", "json", "--include-checks", "I",
		"--regions", "eu-central-1", "us-east-1", "--", template.File)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(folder, "packages"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run() // it also fails if it has findings
	var report []struct {
		Message  string
		Location struct{ Path []any }
		Rule     struct{ ID string }
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("cfn-lint: %v, %v\n%s", runErr, err, stderr.Bytes())
	}
	found := map[string]string{}
	for _, r := range report {
		of := ""
		if len(r.Location.Path) > 1 {
			of = fmt.Sprint(r.Location.Path[1])
		}
		found[r.Rule.ID+" "+of] = r.Message
	}
	argue(t, "cfn-lint", found, argued)
}

// argue fails the test if a finding is not argued, or if an argued finding does not exist. The key of a finding is its
// rule, a space and the resource. argued has a reason for each, either by the same key, or by the rule if the reason
// holds for every resource.
func argue(t *testing.T, checker string, found, argued map[string]string) {
	t.Helper()
	used := map[string]bool{}
	for key, message := range found {
		rule, _, _ := strings.Cut(key, " ")
		used[key], used[rule] = true, true
		if argued[key] == "" && argued[rule] == "" {
			t.Errorf("%s: %s: %s. The test gives no reason for it", checker, key, message)
		}
	}
	for key := range argued {
		if !used[key] {
			t.Errorf("%s: there is no finding %s any more: remove its reason", checker, key)
		}
	}
	t.Logf("%s: %d findings, all with a reason unless the test failed", checker, len(found))
}

// Checkov runs checkov's rules for CloudFormation on the template, offline. argued is as for argue.
func Checkov(t *testing.T, template Template, argued map[string]string) {
	t.Helper()
	folder := pip(t, checkov(), "checkov", "checkov.txt")
	program := filepath.Join(folder, "packages", "bin", "checkov")
	cmd := exec.CommandContext(t.Context(), "python3", program, "--file", template.File, "--framework", "cloudformation", "--quiet", "--compact", "--output", "json",
		"--skip-download", "--skip-results-upload")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(folder, "packages"), "LOG_LEVEL=ERROR")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run() // it also fails if it has findings
	var report struct {
		Results struct {
			Failed []struct {
				Check    string `json:"check_id"`
				Name     string `json:"check_name"`
				Resource string `json:"resource"`
			} `json:"failed_checks"`
		} `json:"results"`
		Summary struct {
			Passed    int `json:"passed"`
			Unread    int `json:"parsing_errors"`
			Resources int `json:"resource_count"`
		} `json:"summary"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("checkov: %v, %v\n%s", runErr, err, stderr.Bytes())
	}
	if report.Summary.Passed == 0 || report.Summary.Unread > 0 || report.Summary.Resources != len(template.Resources) {
		t.Errorf("checkov did not read the whole template of %d resources: %+v", len(template.Resources), report.Summary)
	}
	found := map[string]string{}
	for _, f := range report.Results.Failed {
		found[f.Check+" "+f.Resource[strings.LastIndex(f.Resource, ".")+1:]] = f.Name
	}
	argue(t, "checkov", found, argued)
}

// ReadYAML11 reads a YAML template by the rules of YAML 1.1, as CloudFormation does: in
// this version an unquoted No is false and an unquoted 2012-10-17 is a date.
func ReadYAML11(t *testing.T, file string) (content any) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-c", "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)", file)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(linter(t), "packages"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &content)
	}
	if err != nil {
		t.Fatalf("read %s as YAML 1.1: %v\n%s", file, err, stderr.Bytes())
	}
	return content
}

// linter returns the folder with cfn-lint and its packages.
func linter(t *testing.T) string {
	t.Helper()
	return pip(t, cfnLint(), "cfn-lint", "requirements.txt")
}

// pip returns a folder with the Python packages of a requirements file of tools/infra, in its folder packages. The file
// has a hash of each package.
func pip(t *testing.T, c checker, kind, file string) string {
	t.Helper()
	return fetch(t, c, kind, []string{file}, func(ctx context.Context, folder string) error {
		requirements, err := filepath.Abs(filepath.Join(toolsFolder, file))
		if err != nil {
			return err
		}
		return command(ctx, folder, "python3", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", "packages", "-r", requirements)
	})
}

// Guard runs cfn-guard with AWS Control Tower's rules on the template. argued is as for
// argue, by rule.
func Guard(t *testing.T, template Template, argued map[string]string) {
	t.Helper()
	arch, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	system, known := map[string]string{"linux": "ubuntu", "darwin": "macos"}[runtime.GOOS]
	if !ok || !known {
		cfnGuard().missing(t, fmt.Errorf("cfn-guard has no build for %s on %s", runtime.GOOS, runtime.GOARCH))
	}
	folder := filepath.Join(node(t, cfnGuard()), "node_modules", "@cdklabs", "cdk-validator-cfnguard")
	binary := filepath.Join(folder, "bin", system, arch, "cfn-guard")
	if err := os.Chmod(binary, 0o755); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "validate", "--data", template.File, "--rules", filepath.Join(folder, "rules", "control-tower", "cfn-guard"),
		"--show-summary", "none", "--output-format", "json", "--structured")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run() // it also fails if the template breaks a rule
	var report []struct {
		NotCompliant []struct {
			Rule struct {
				Name     string `json:"name"`
				Messages struct {
					Custom string `json:"custom_message"`
				} `json:"messages"`
			} `json:"Rule"`
		} `json:"not_compliant"`
		Compliant []string `json:"compliant"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("cfn-guard: %v, %v\n%s", runErr, err, stderr.Bytes())
	}
	found := map[string]string{}
	passed := 0
	for _, r := range report {
		passed += len(r.Compliant)
		for _, rule := range r.NotCompliant {
			found[rule.Rule.Name] = "the template does not follow the rule"
		}
	}
	if passed == 0 {
		t.Error("cfn-guard: no rule applied to the template")
	}
	argue(t, "cfn-guard", found, argued)
	t.Logf("cfn-guard: %d rules followed", passed)
}

// CDK runs the CDK's CLI in the root of the repository, as a vendor does, and returns
// its standard output.
func CDK(t *testing.T, args ...string) string {
	t.Helper()
	return CDKIn(t, filepath.Dir(filepath.Dir(toolsFolder)), args...)
}

// CDKIn is CDK in another checkout of the repository.
func CDKIn(t *testing.T, root string, args ...string) string {
	t.Helper()
	cli := filepath.Join(node(t, checker{"the CDK's CLI", "FAIRLEAD_REQUIRE_CDK", "Node with npm"}), "node_modules", "aws-cdk", "bin", "cdk")
	cmd := exec.CommandContext(t.Context(), "node", append([]string{cli, "--no-notices", "--no-version-reporting"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cdk %v: %v\n%s", args, err, stderr.Bytes())
	}
	return string(out)
}

// Question asks whether a principal may use an action on a resource.
type Question = iamsimulator.Question

// Ask evaluates the questions as IAM does, and returns for each whether it is allowed.
// An invalid question fails the test.
func Ask(t *testing.T, questions []Question) []bool {
	t.Helper()
	simulator := iamsimulator.Start(t)
	defer simulator.Stop()
	allowed, err := simulator.Ask(questions)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

// Accepts reports for each value whether the AllowedPattern of the template's parameter
// accepts it. CloudFormation reads patterns as Java does. Node reads those without Java's
// own syntax in the same way.
func Accepts(t *testing.T, template Template, parameter string, values []string) []bool {
	t.Helper()
	parameters, _ := template.Raw["Parameters"].(map[string]any)
	of, _ := parameters[parameter].(map[string]any)
	pattern, _ := of["AllowedPattern"].(string)
	if pattern == "" {
		t.Fatalf("the parameter %s has no pattern", parameter)
	}
	node(t, cfnGuard()) // skips the test without Node
	input, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	const script = `const [pattern, values] = process.argv.slice(1); console.log(JSON.stringify(JSON.parse(values).map(v => new RegExp(pattern).test(v))))`
	out, err := exec.CommandContext(t.Context(), "node", "-e", script, pattern, string(input)).Output()
	var accepted []bool
	if err == nil {
		err = json.Unmarshal(out, &accepted)
	}
	if err != nil || len(accepted) != len(values) {
		t.Fatalf("node: %d answers to %d values, %v", len(accepted), len(values), err)
	}
	return accepted
}
