package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tributary/internal/names"
)

// The rules of Kubernetes for names, labels and annotations (k8s.io/apimachinery/pkg/util/validation, with which a test
// compares these), without its regular expressions.

// checkName checks the name of an object: a DNS subdomain (RFC 1123).
func checkName(name string) error {
	if len(name) > 253 {
		return fmt.Errorf("%q… is longer than 253 characters", name[:40])
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || names.Clean(label) != label {
			return fmt.Errorf("%q is not a name: only a-z, 0-9, '-' and '.', with a letter or digit at either end and beside "+
				"each '.'", name)
		}
	}
	return nil
}

// checkKeyPart checks that a name or namespace can be part of a key.
func checkKeyPart(name string) error {
	switch {
	case len(name) > 253:
		return fmt.Errorf("%q… is longer than 253 characters", name[:40])
	case name == "", strings.Contains(name, "/"), strings.ContainsFunc(name, unicode.IsControl), !utf8.ValidString(name):
		return fmt.Errorf("%q is not a name: it is empty, or has a '/', a control character or invalid UTF-8", name)
	}
	return nil
}

// CheckNamespace returns an error of the name of a namespace, which must be a DNS label (RFC 1123).
func CheckNamespace(namespace string) error {
	if len(namespace) > 63 {
		return fmt.Errorf("%q… is longer than 63 characters", namespace[:40])
	}
	if !names.IsDNSLabel(namespace) {
		return fmt.Errorf("%q is not the name of a namespace: only a-z, 0-9 and '-', with a letter or digit at either end",
			namespace)
	}
	return nil
}

// checkMeta checks labels and annotations. The errors are in order of their text.
func checkMeta(meta Meta) []error {
	var errs []error
	for key, value := range meta.Labels {
		if err := CheckLabelKey(key); err != nil {
			errs = append(errs, fmt.Errorf("metadata.labels: %w", err))
		}
		if err := CheckLabelValue(value); err != nil {
			errs = append(errs, fmt.Errorf("metadata.labels[%q]: %w", key, err))
		}
	}
	size := 0
	for key, value := range meta.Annotations {
		if err := CheckAnnotationKey(key); err != nil {
			errs = append(errs, fmt.Errorf("metadata.annotations: %w", err))
		}
		if !utf8.ValidString(value) {
			errs = append(errs, fmt.Errorf("metadata.annotations[%q]: not valid UTF-8", key))
		}
		size += len(key) + len(value)
	}
	if size > MaxAnnotations {
		errs = append(errs, errors.New("metadata.annotations: larger than 256 KiB together"))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// MaxAnnotations bounds the bytes of all annotations of an object together.
const MaxAnnotations = 256 << 10

// CheckLabelValue returns an error of the value of a label.
func CheckLabelValue(value string) error {
	switch {
	case len(value) > 63:
		return errors.New("longer than 63 characters")
	case value != "" && !names.IsLabelText(value):
		return fmt.Errorf("%q is not a label value: only letters, digits, '-', '_' and '.', with a letter or digit at "+
			"either end", value)
	}
	return nil
}

// CheckAnnotationKey returns an error of the key of an annotation: like that of a label, but in any case.
func CheckAnnotationKey(key string) error { return CheckLabelKey(strings.ToLower(key)) }

// CheckLabelKey returns an error of the key of a label: a name, optionally after a DNS subdomain and a slash.
func CheckLabelKey(key string) error {
	name := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		if err := checkName(prefix); err != nil {
			return fmt.Errorf("key %q: before the slash, %w", key, err)
		}
		name = rest
	}
	switch {
	case len(name) > 63:
		return fmt.Errorf("key %q… is longer than 63 characters", key[:40])
	case !names.IsLabelText(name):
		return fmt.Errorf("%q is not a key: only letters, digits, '-', '_' and '.', with a letter or digit at either end",
			key)
	}
	return nil
}
