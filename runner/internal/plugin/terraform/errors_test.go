package terraform_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/controltest"
)

// The message of a failure had the frame around the values in it, and not what the
// author of the module has to say.
func TestTheAuthorsWordsOfAFailureAreInItsMessage(t *testing.T) {
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
		for name, path := range controltest.Tools(t) {
			t.Run(what+"/"+name, func(t *testing.T) {
				_, err := newDeployed(t, path, "", map[string]string{"main.tf": tc.module}, nil).run(t, "plan", nil)
				if err == nil {
					t.Fatal("the plan succeeds")
				}
				message, _, _ := strings.Cut(err.Error(), "\n") // what follows is the log
				if !strings.Contains(message, tc.want) || strings.ContainsAny(message, "│├─╷╵") {
					t.Errorf("the message is %s", message)
				}
			})
		}
	}
}
