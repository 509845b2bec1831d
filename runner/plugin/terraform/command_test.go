package terraform

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
)

// OpenTofu 1.8 to 1.10 refuse an apply that gets variables together with a saved plan.
func TestEachToolGetsItsVariablesWhereItAcceptsThem(t *testing.T) {
	const commands = "init plan show apply output"
	for _, tc := range []struct {
		kind        kind
		file        string // the commands that get the variables' file
		environment bool   // of the apply
	}{
		{kind{false, "v1.5.7"}, "init", false},
		{kind{false, "v1.9.8"}, "init", false},
		{kind{false, "v1.10.0"}, "init apply", false},
		{kind{false, "v1.15.0"}, "init apply", false},
		{kind{true, "v1.8.0"}, "init plan show output", true},
		{kind{true, "v1.10.10"}, "init plan show output", true},
		{kind{true, "v1.11.0"}, commands, false},
		{kind{true, "v1.12.6"}, commands, false},
	} {
		var file []string
		for command := range strings.FieldsSeq(commands) {
			if args := tc.kind.withVariables(command, "x"); len(args) == 1 && args[0] == "-var-file=x" {
				file = append(file, command)
			}
		}
		env := tc.kind.applyEnvironment(map[string]events.SpecVar{"a": {Value: json.RawMessage(`"b"`)}})
		if strings.Join(file, " ") != tc.file || (len(env) > 0) != tc.environment {
			t.Errorf("%+v: commands with the file: %v, environment: %v", tc.kind, file, env)
		}
	}
}

func TestEnvironmentVariablesAreEscapedForTheTool(t *testing.T) {
	vars := map[string]events.SpecVar{}
	for name, v := range map[string]string{
		"text": `"a\"b ${x}"`, "number": `1.50`, "truth": `true`, "nothing": `null`, "list": `["${a}", "%{if}", "<"]`,
		"large": `"` + strings.Repeat("x", maxEnvVariable+1) + `"`,
	} {
		vars[name] = events.SpecVar{Value: json.RawMessage(v)}
	}
	for i := range 20 { // more than the environment takes
		vars[fmt.Sprintf("z%02d", i)] = events.SpecVar{Value: json.RawMessage(`"` + strings.Repeat("y", maxEnvVariable) + `"`)}
	}
	env := kind{true, "v1.8.0"}.applyEnvironment(vars)
	for name, want := range map[string]string{
		"text": `a"b ${x}`, "number": "1.50", "truth": "true", "nothing": "null", "list": `["$${a}", "%%{if}", "<"]`, "large": "",
	} {
		if got := env["TF_VAR_"+name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	total := 0
	for _, v := range env {
		total += len(v)
	}
	if total > maxEnv || env["TF_VAR_z00"] == "" {
		t.Errorf("the environment has %d bytes", total)
	}
}
