package fairlead

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// JSONError returns an error of package encoding/json in the terms of JSON, for a person who sent the document: the package
// names types of Go. It returns other errors unchanged, and nil for nil.
func JSONError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what := "an object"
		switch e.Type.Kind() {
		case reflect.Bool:
			what = "true or false"
		case reflect.String:
			what = "a string"
		case reflect.Slice, reflect.Array:
			what = "a list"
		case reflect.Float32, reflect.Float64:
			what = "a number"
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			what = "a whole number in its range, without point and exponent"
		}
		return fmt.Errorf("%s must be %s", cmp.Or(e.Field, "the document"), what)
	}
	if err == nil {
		return nil
	}
	// The package has no type for an unknown field.
	if text, ok := strings.CutPrefix(err.Error(), "json: "); ok {
		return errors.New(text)
	}
	return err
}
