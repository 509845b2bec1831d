//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const appName = "diamond"

// components are the components of the app. needs lists the components that each component needs.
var components = [...]struct{ name, needs string }{{"base", ""}, {"left", "base"}, {"right", "base"}, {"top", "left right"}}

// module creates two resources, the second after the first. Each resource writes to the ledger
// when it is created and when it is removed. A changed revision replaces the two resources.
const module = `
variable "note" { type = string }
variable "owner" { type = string }
variable "revision" { type = string }
variable "pace" { type = string }
variable "from" {
  type    = list(string)
  default = []
}

locals { input = { note = var.note, owner = var.owner } }

resource "terraform_data" "a" {
  triggers_replace = [var.revision]
  input            = local.input
  provisioner "local-exec" {
    command = "exec sh ${var.note} create ${self.id} ${var.owner} terraform_data.a ${var.pace}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "exec sh ${self.input.note} destroy ${self.id} ${self.input.owner} terraform_data.a"
  }
}

resource "terraform_data" "b" {
  triggers_replace = [var.revision, terraform_data.a.id]
  input            = merge(local.input, { from = join(" ", var.from) })
  provisioner "local-exec" {
    command = "exec sh ${var.note} create ${self.id} ${var.owner} terraform_data.b ${var.pace}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "exec sh ${self.input.note} destroy ${self.id} ${self.input.owner} terraform_data.b"
  }
}

output "id" { value = terraform_data.b.id }
`

// linesPrinted is the number of lines that each creation prints, which go to the job's log.
const linesPrinted = 200

// writeApp writes the app's folder.
func writeApp(dir, note string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "fairlead: v1\nname: %s\ninputs:\n  revision: {type: string}\n  pace: {type: string, default: \"0\"}\ncomponents:\n", appName)
	var err error
	for _, c := range components {
		fmt.Fprintf(&b, "  %s:\n    type: terraform\n    source: ./%s\n    vars:\n      note: %s\n      owner: ${install.name}/%s\n", c.name, c.name, note, c.name)
		fmt.Fprint(&b, "      revision: ${inputs.revision}\n      pace: ${inputs.pace}\n")
		if needs := strings.Fields(c.needs); len(needs) > 0 {
			for i, n := range needs {
				needs[i] = "${components." + n + ".outputs.id}"
			}
			fmt.Fprintf(&b, "      from: [%s]\n", "\""+strings.Join(needs, "\", \"")+"\"")
		}
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, c.name), 0o755),
			os.WriteFile(filepath.Join(dir, c.name, "main.tf"), []byte("# "+c.name+"\n"+module), 0o644))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(b.String()), 0o644))
}

// noteScript is the script that a resource runs. The attempt is the name of the step's folder,
// whose path is in the environment. A line is one write, which the kernel appends atomically.
const noteScript = `attempt=${FAIRLEAD_STEP##*/}
case $1 in
create)
	[ "$5" = 0 ] || sleep "$5"
	echo "create $2 $3 $4 $attempt" >>'%[1]s' || exit 1
	[ "$5" = 0 ] || sleep "$5"
	seq -f "$2-line-%%04g" 1 %[2]d || exit 1
	echo "printed $2 %[2]d $attempt" >>'%[1]s' || exit 1 ;;
destroy)
	echo "destroy $2 $3 $4 $attempt" >>'%[1]s' || exit 1 ;;
esac
`

// toolScript runs before the tool and then replaces itself with the tool by exec. So its
// process ID, its parent and its exit code are those of the tool. The kernel releases the lock
// on the descriptor when the tool and all its children have ended, in any way. If the file pull
// exists, the script lets the tool pull the state before a plan, with the access of the job.
const toolScript = `#!/bin/sh
attempt=${FAIRLEAD_STEP##*/}
if [ -n "$TF_HTTP_ADDRESS" ]; then key=${TF_HTTP_ADDRESS#*//*/}; elif [ -L ../state ]; then key=$(readlink ../state); else key=none; fi
name=$(printf %%s "$key" | tr / _)
case $1 in
apply|destroy|plan|refresh)
	echo "tool $1 $attempt $key" >>'%[1]s' || exit 1 ;;
esac
case $1 in
apply|destroy)
	exec 9>>'%[2]s'/"$name.lock"
	if flock -n 9; then echo "$attempt" >'%[2]s'/"$name.holder"
	else echo "overlap $1 $attempt $key $(cat '%[2]s'/"$name.holder")" >>'%[1]s'; fi ;;
plan)
	if [ -e '%[2]s/pull' ]; then '%[3]s' state pull >'%[2]s'/"$name.new" && mv '%[2]s'/"$name.new" '%[2]s'/"$name.tfstate" || exit 1; fi ;;
esac
exec '%[3]s' "$@"
`
