package manifest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/runner/plugin"
)

// variable matches ${vars.NAME}, and $${vars.NAME}, which stands for the text ${vars.NAME}. Other texts with a dollar sign stay as
// they are, because the scripts in ConfigMaps are full of them.
var variable = pattern.New(`\$?\$\{vars\.([A-Za-z_][A-Za-z0-9_-]*)\}`)

// Substitute replaces ${vars.NAME} in the texts of the objects by the component's variables, after the files are parsed. So a
// value cannot add a field to an object. A text that is one variable gets the variable's type; a list or map as a part of a text
// is refused. Names of fields, apiVersion and kind are not substituted. The values of a Secret are substituted as the texts that
// they encode. The objects are checked again with their values. The numbers of vars are int64 or float64. Every error is a
// *plugin.Error that names the file and the line of the object.
func Substitute(objects []Object, vars map[string]any) error {
	for i, o := range objects {
		version, kind := o.GetAPIVersion(), o.GetKind()
		object, err := substitute(o.Object, vars)
		if err == nil && (variable.MatchString(version) || variable.MatchString(kind)) {
			err = errors.New("apiVersion and kind cannot be variables")
		}
		if err == nil && isSecret(o.Unstructured) {
			err = substituteSecret(o.Object, vars)
		}
		if err != nil {
			return &plugin.Error{Reason: fairlead.ReasonManifestInvalid, Err: err, Message: fmt.Sprintf("%s: %s: %v", o.place(), kindAndName(o), err)}
		}
		o.Object, _ = object.(map[string]any)
		if objects[i], err = check(o); err != nil {
			return err
		}
	}
	return refuseRepeated(objects)
}

// substituteSecret substitutes the values of a Secret, which Parse has encoded.
func substituteSecret(object, vars map[string]any) error {
	data, _ := object["data"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(data)) {
		encoded, _ := data[name].(string)
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !utf8.Valid(text) {
			continue // binary
		}
		value, err := expand(string(text), vars)
		if err != nil {
			return err
		}
		if value, ok := value.(string); ok {
			data[name] = base64.StdEncoding.EncodeToString([]byte(value))
			continue
		}
		return fmt.Errorf("the value of %s is no text: put quotes around the variable in app.yaml", name)
	}
	return nil
}

func kindAndName(o Object) string { return o.GetKind() + " " + o.GetName() }

func substitute(v any, vars map[string]any) (_ any, err error) {
	switch v := v.(type) {
	case string:
		return expand(v, vars)
	case []any:
		for i := range v {
			if v[i], err = substitute(v[i], vars); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if v[name], err = substitute(v[name], vars); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// expand returns the text with its variables, or a copy of the variable that the text is.
func expand(text string, vars map[string]any) (any, error) {
	found := variable.Regexp().FindAllStringSubmatchIndex(text, -1)
	if len(found) == 1 && found[0][0] == 0 && found[0][1] == len(text) && !strings.HasPrefix(text, "$$") {
		v, err := lookUp(text[found[0][2]:found[0][3]], vars)
		return runtime.DeepCopyJSONValue(v), err
	}
	var b strings.Builder
	end := 0
	for _, at := range found {
		b.WriteString(text[end:at[0]])
		end = at[1]
		if strings.HasPrefix(text[at[0]:], "$$") {
			b.WriteString(text[at[0]+1 : at[1]])
			continue
		}
		name := text[at[2]:at[3]]
		value, err := lookUp(name, vars)
		if err != nil {
			return nil, err
		}
		switch value := value.(type) {
		case string:
			b.WriteString(value)
		case int64:
			b.WriteString(strconv.FormatInt(value, 10))
		case float64:
			b.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
		case bool:
			b.WriteString(strconv.FormatBool(value))
		default:
			return nil, fmt.Errorf("the variable %s is no text, number or true or false, so it cannot be a part of a text", name)
		}
	}
	return b.String() + text[end:], nil
}

func lookUp(name string, vars map[string]any) (any, error) {
	v, ok := vars[name]
	if !ok {
		return nil, fmt.Errorf("${vars.%s} names a variable that the component does not have: add it to vars in app.yaml, or write $${vars.%s} for this text", name, name)
	}
	return v, nil
}
