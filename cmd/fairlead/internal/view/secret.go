package view

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// secrets writes which secrets the app needs from the customer, and how the customer gives
// them. It writes nothing if there are none.
func secrets(p *Page, all []wire.CustomerSecret) {
	if len(all) == 0 {
		return
	}
	p.Gap()
	p.Line("The app needs these secrets of the customer. A job without its secrets does not start.")
	table(p, []string{"COMPONENT", "GETS IT AS", "ENTRY", "NEW"}, all, func(s wire.CustomerSecret) []string {
		as, isNew := "environment variable "+s.Name, "-"
		if variable, ok := strings.CutPrefix(s.Name, "var."); ok {
			as = "variable " + variable
		}
		if s.New {
			isNew = "new"
		}
		return []string{s.Component, as, s.Entry, isNew}
	})
	onTask, inCluster, onMachine := secretsOn(all, runnerspec.ExecutorECS), secretsOn(all, runnerspec.ExecutorKubernetes), secretsOn(all, runnerspec.ExecutorProcess, runnerspec.ExecutorDocker)
	if len(onTask) > 0 {
		p.Line("The customer gives %s in the parameter JobSecrets of the runner's stack: ENTRY=ARN, separated by commas, at most %d.", those(onTask, all), wire.MaxStackSecrets)
		p.Line("For tasks of a runner without a stack, they are under secrets of the agent's file: ENTRY: ssm:NAME, or secretsmanager:NAME.")
	}
	if len(inCluster) > 0 {
		p.Line("The customer gives %s under secrets of the values of the runner's chart, or of the agent's file: ENTRY: kubernetes:SECRET/KEY, ssm:NAME, or secretsmanager:NAME.", those(inCluster, all))
		p.Line("SECRET is a Secret in the namespace of the runner's jobs.")
	}
	if len(onMachine) > 0 {
		p.Line("The customer gives %s under secrets of the agent's file: ENTRY: file:/path, ssm:NAME, or secretsmanager:NAME.", those(onMachine, all))
	}
	if len(onTask) > wire.MaxStackSecrets {
		p.Line("An entry without COMPONENT/ gives a secret to all components that need its name.")
	}
	p.Gap()
}

// secretsOn returns the secrets of jobs that one of these executors starts. A secret of an install that no runner serves may be for
// each of them.
func secretsOn(all []wire.CustomerSecret, executors ...string) []wire.CustomerSecret {
	return slices.DeleteFunc(slices.Clone(all), func(s wire.CustomerSecret) bool {
		return s.RunnerKind != "" && !slices.Contains(executors, runnerspec.Kind(s.RunnerKind).Executor())
	})
}

// those refers to some of all secrets, by their components.
func those(some, all []wire.CustomerSecret) string {
	if len(some) == len(all) {
		return "them"
	}
	var names []string
	for _, s := range some {
		names = append(names, s.Component)
	}
	return "those of " + strings.Join(slices.Compact(names), ", ")
}
