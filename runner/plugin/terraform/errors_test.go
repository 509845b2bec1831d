package terraform_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/tofu"
)

// A module author's text may look like the start of another error of the tool. The message must have the whole text.
func TestErrorMessageMayLookLikeAToolError(t *testing.T) {
	const module = `
variable "v" { default = 1 }
resource "terraform_data" "a" {
  input = 1
  lifecycle {
    precondition {
      condition     = var.v == 2
      error_message = "The network has:\n\nError: no route\n\non a line 3 of yours\nas %s."
    }
  }
}
`
	reports := 0
	for name, path := range tofu.Tools(t) {
		out, err := exec.CommandContext(t.Context(), path, "plan", "-help").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(out), "-json-into") {
			continue // it cannot print for people and write a report at once
		}
		reports++
		t.Run(name, func(t *testing.T) {
			_, err := newDeployed(t, path, "", map[string]string{"main.tf": fmt.Sprintf(module, "the operator knows")}, nil).run(t, "plan", nil)
			if err == nil {
				t.Fatal("the plan succeeds")
			}
			message, _, _ := strings.Cut(err.Error(), "\n") // the log follows
			if !strings.Contains(message, "Resource precondition failed: The network has: Error: no route on a line 3 of yours as the operator knows.") {
				t.Errorf("message: %s", message)
			}
		})
	}
	if reports == 0 {
		t.Skip("SKIPPED: no tool here has -json-into, which OpenTofu has since 1.12")
	}
}

// The message has the text of the module's author, and not the frame with the values around it.
func TestFailureHasTheModulesErrorMessage(t *testing.T) {
	for what, tc := range map[string]struct{ module, want string }{
		"a precondition": {`
variable "v" { default = { size = 1 } }
resource "terraform_data" "a" {
  input = 1
  lifecycle {
    precondition {
      condition     = var.v == { size = 2 }
      error_message = "The size must be 2: ask the network team."
    }
  }
}
`, "Resource precondition failed: The size must be 2: ask the network team."},
		"a postcondition of two paragraphs": {`
resource "terraform_data" "a" {
  input = 1
  lifecycle {
    postcondition {
      condition     = self.input == 2
      error_message = "It is not 2.\n\nSet it to 2: on line 3 of the file."
    }
  }
}
`, "Resource postcondition failed: It is not 2. Set it to 2: on line 3 of the file."},
		"a validation of a variable": {`
variable "v" {
  default = 3
  validation {
    condition     = var.v == 4
    error_message = "The number must be 4."
  }
}
`, "Invalid value for variable: The number must be 4."},
		"an argument of a function": {`output "o" { value = file("nowhere") }`, `Invalid value for "path" parameter: no file exists at "nowhere"`},
	} {
		for name, path := range tofu.Tools(t) {
			t.Run(what+"/"+name, func(t *testing.T) {
				_, err := newDeployed(t, path, "", map[string]string{"main.tf": tc.module}, nil).run(t, "plan", nil)
				if err == nil {
					t.Fatal("the plan succeeds")
				}
				message, _, _ := strings.Cut(err.Error(), "\n") // the log follows
				if !strings.Contains(message, tc.want) || strings.ContainsAny(message, "│├─╷╵") {
					t.Errorf("message: %s", message)
				}
			})
		}
	}
}
