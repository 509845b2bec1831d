package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
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
	p.Line("The customer gives them in the parameter JobSecrets of the runner's stack: ENTRY=ARN, separated by commas, at most %d.", wire.MaxStackSecrets)
	p.Line("On another runner, they are under secrets of the agent's file: ENTRY: ssm:NAME, secretsmanager:NAME, or file:/path.")
	if len(all) > wire.MaxStackSecrets {
		p.Line("An entry without COMPONENT/ gives a secret to all components that need its name.")
	}
	p.Gap()
}
