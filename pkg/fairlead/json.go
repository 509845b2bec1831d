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
// names types of Go. It wraps other errors, and returns nil for nil.
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
	return jsonError{err} // the package has no type for an unknown field
}

// jsonError is an error whose text does not name the package.
type jsonError struct{ error }

func (e jsonError) Error() string { return strings.TrimPrefix(e.error.Error(), "json: ") }
func (e jsonError) Unwrap() error { return e.error }
