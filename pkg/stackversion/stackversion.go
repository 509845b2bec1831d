// Package stackversion lists the versions of the template of customers' runner stacks,
// with the changes of each. The control plane shows them to a vendor whose customer has
// an older stack. The package is pure.
package stackversion

// Version is a version of the template.
type Version struct {
	Number  string   // "2"; the runner of a stack reports it
	Changes []string // for the customer who updates the stack, one sentence each
}

// Released is the number of versions that customers can have: their sentences and templates
// are final. Nothing has been released yet.
const Released = 0

// All returns all versions, oldest first. Each change of the template adds a version, or a
// sentence to a version that is not released (infra/runnerstack checks it).
func All() []Version {
	return []Version{
		{"1", []string{"The first template."}},
		{"2", []string{
			"Each job runs in a task of its own, with the role of its operation: Isolation.",
			"There is no role for emergencies any more: BreakGlass and BreakGlassPolicyArn are gone.",
			"A new stack can use the states that an earlier stack left: ExistingStateBucket and ExistingStateKey.",
			"A KMS key of yours can encrypt states (ExistingStateKey) and logs (LogKeyArn).",
			"RunnerState Paused replaces no task and interrupts no job: the runner reads its mode from a parameter of Systems Manager.",
			"The boundary keeps roles away from what the install did not make: it recognises its own resources by the tag fairlead_install.",
			"FlowLogs records the connections of the runner's VPC.",
			"EcsServiceLinkedRole makes the role of ECS in an account that has never used ECS; the role stays when the stack is deleted, and the outputs name it.",
			"An operation can have fewer actions than AppActions: ProvisionActions, DeployActions and DeprovisionActions.",
			"The runner reports AppActions, so a version of the app that needs more waits.",
			"AppUses shows AppActions in sentences, in the form and as an output.",
			"Jobs can get secrets of yours: JobSecrets.",
			"The outputs name what stays in the account when the stack is deleted, and whether it existed before the stack.",
			"If you delete the stack while a job runs, the deletion fails at the cluster, and the job keeps its roles and its network until it has ended.",
			"Jobs share the archives of providers in the state bucket, below providers/.",
			"WarmTasks keeps tasks started for the first jobs of deployments.",
			"With PlansReadData No, plans also read no output of commands and automations, no input of executions, no live logs and no logs of databases.",
			"No role changes settings of the account's registry, logs, ECS, disks and public access, reads the credentials of a connection of EventBridge, resumes a session of Systems Manager, uses a certificate in an enclave, copies network traffic, or uses automated backups of others.",
			"Scripts can run in images of their own, at most 4, which ScriptImages lists.",
			"A policy of yours decides what jobs may do: Policy.",
			"Images of the app are copied to repositories below fairlead/, each for one component: an apply makes them, plans read them, and a destroy removes their images.",
			"Jobs read the repository fairlead/mirror, to which you can copy the bundle of a closed app.",
			"A secret in your account has the seed of keys with which jobs encrypt the app's secrets, so that the control plane cannot read them: ExistingInstallKey. The secret costs 0.40 dollars a month and stays when the stack is deleted.",
		}},
	}
}

// Current returns the number of the newest version.
func Current() string {
	all := All()
	return all[len(all)-1].Number
}

// After returns the versions that are newer than the given one, oldest first. It returns
// none for an unknown number: such a stack is newer than this control plane, or of
// another template.
func After(number string) []Version {
	all := All()
	for i, v := range all {
		if v.Number == number {
			return all[i+1:]
		}
	}
	return nil
}
