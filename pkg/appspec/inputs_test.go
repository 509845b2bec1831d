package appspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestInputsGetDefaultsAndKeepSecrets(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	got, err := app.CheckInputs(map[string]any{"db-password": "hush", "replicas": nil})
	if err != nil {
		t.Fatal(err)
	}
	if want := "map[db-password:{hush true} public:{<nil> false} replicas:{2 false} zones:{[a b] false}]"; fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestEveryWrongInputIsReportedWithoutItsValue(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(shop))
	if problems != nil {
		t.Fatal(problems)
	}
	values, err := app.CheckInputs(map[string]any{
		"replica": "hush", "zones": []any{"a", 7}, "public": "hush", "replicas": func() {},
	})
	if values != nil || fairlead.KindOf(err) != fairlead.KindInvalid || fairlead.CodeOf(err) != "invalid-inputs" {
		t.Fatalf("got %v, %v", values, err)
	}
	list, _ := errors.AsType[appspec.InputProblems](err)
	var got []string
	for _, p := range list {
		got = append(got, p.Input+" "+p.Code)
	}
	if want := "[db-password missing-input public wrong-type replica unknown-input replicas wrong-type zones wrong-type]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, want := range []string{`Did you mean "replicas"?`, "got a number at [1]", "wants a bool, got a string"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("the error %q holds a value", err)
	}
}

func TestTypesParseCommandLineText(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"string", "3", `"3"`},
		{"string", "", `""`},
		{"number", "3", `3`},
		{"number", "1.50", `1.5`},
		{"number", "three", "error wants a number"},
		{"bool", "true", `true`},
		{"bool", "1", "error wants true or false"},
		{"list", `[1,"a"]`, `[1,"a"]`},
		{"list(string)", `[1,"a"]`, "error wants a string, got a number at [0]"},
		{"map(number)", `{"a":1}`, `{"a":1}`},
		{"map(number)", `a=1`, `error wants a map(number) as JSON, such as {"key":"value"}`},
		{"list", `[] []`, `error wants a list as JSON, such as ["a","b"]`},
		{"any", `{"a":1}`, `{"a":1}`},
		{"any", `plain`, `"plain"`},
	} {
		got := ""
		if v, err := appspec.Type(c.typ).FromText(c.text); err != nil {
			got = "error " + err.Error()
		} else if data, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		} else {
			got = string(data)
		}
		if got != c.want {
			t.Errorf("Type(%s).FromText(%q) = %s, want %s", c.typ, c.text, got, c.want)
		}
	}
}

func TestParseTypeReturnsCanonicalSpelling(t *testing.T) {
	for text, want := range map[string]string{
		" list ( string ) ": "list(string)", "list(any)": "list", "map(list(number))": "map(list(number))", "list(list)": "list(list)",
		"list()": "", "string(string)": "", "": "", "list(string": "", "list)string(": "", "LIST": "",
	} {
		got, err := appspec.ParseType(text)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("ParseType(%q) = %q, %v", text, got, err)
		}
	}
}
