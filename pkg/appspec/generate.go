package appspec

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The limits of a generated text, in characters. The shortest has 95 bits.
const (
	minGenerate = 16
	maxGenerate = 128
)

// generated are the characters of a generated text. All of them are allowed in URLs and shells, and as passwords of databases.
const generated = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// Generated returns a text for the input. pick returns a random number in [0, n).
func (in Input) Generated(pick func(n int) int) string {
	text := make([]byte, in.Generate)
	for i := range text {
		text[i] = generated[pick(len(generated))]
	}
	return string(text)
}

// checkGenerate reports a generated input that is no secret text, or that has another source.
func checkGenerate(report reporter, where string, in Input) {
	if in.Generate == 0 {
		return
	}
	place, name := where+".generate", yamlnode.Quote(in.Name)
	switch {
	case in.Generate < minGenerate || in.Generate > maxGenerate:
		report(place, "invalid-generate", fmt.Sprintf("the generated value of input %s has %d characters; %d to %d are allowed", name, in.Generate, minGenerate, maxGenerate), "")
	case !in.Sensitive || in.Type != String:
		report(place, "invalid-generate", fmt.Sprintf("the input %s is generated and not a sensitive text", name), "Write sensitive: true, and no type or type: string.")
	case in.HasDefault || in.Required:
		report(place, "invalid-generate", fmt.Sprintf("the input %s is generated, and also has a default or is required", name), "Remove the default and the field required.")
	case in.From != "":
		report(place, "invalid-generate", fmt.Sprintf("the input %s is generated, and its giver is the customer", name), "Remove one of the two.")
	}
}
