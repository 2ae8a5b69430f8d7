package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/output"
	"tributary/resource"
)

// printing says how objects are printed.
type printing struct {
	format    string // table, wide, name, yaml or json
	noHeaders bool
	list      bool // there may be more than one
	version   func(resource.Key) string
}

// print prints what was found, of one kind after the other.
func (p *printing) print(w io.Writer, flags *clientFlags, all []found) error {
	switch p.format {
	case "json":
		if !p.list && len(all) == 1 && len(all[0].objects) == 1 {
			return printDocument(w, p.format, all[0].objects[0], p.version)
		}
		return printJSONList(w, all, p.version)
	case "yaml":
		return p.yaml(w, all)
	case "name":
		return printNames(w, all)
	}
	var b bytes.Buffer
	options := output.TableOptions{
		Namespaces: flags.everywhere && p.list || ofSeveralNamespaces(all), Kinds: len(all) > 1, Wide: p.format == "wide", NoHeaders: p.noHeaders,
	}
	for _, f := range all {
		if len(f.objects) == 0 {
			continue
		}
		if b.Len() > 0 && !p.noHeaders {
			b.WriteByte('\n')
		}
		if err := output.Table(&b, f.schema.Kind, f.objects, options, time.Now()); err != nil {
			return err
		}
	}
	text := b.String()
	if p.format != "wide" {
		text = output.ScreenOf(w).Cut(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// ofSeveralNamespaces reports whether the objects have to be told apart by their namespaces.
func ofSeveralNamespaces(all []found) bool {
	namespaces := make(map[string]bool)
	for _, f := range all {
		for _, r := range f.objects {
			if r.Key().Namespace != "" {
				namespaces[r.Key().Namespace] = true
			}
		}
	}
	return len(namespaces) > 1
}

func (p *printing) yaml(w io.Writer, all []found) error {
	separator := ""
	for _, f := range all {
		for _, r := range f.objects {
			if _, err := io.WriteString(w, separator); err != nil {
				return err
			}
			if err := printDocument(w, p.format, r, p.version); err != nil {
				return err
			}
			separator = "---\n"
		}
	}
	return nil
}

// printNames prints objects as get takes them.
func printNames(w io.Writer, all []found) error {
	for _, f := range all {
		for _, r := range f.objects {
			parts := []string{strings.ToLower(string(f.schema.Kind)), r.Key().Namespace, r.Key().Name}
			if parts[1] == "" {
				parts = []string{parts[0], parts[2]}
			}
			if _, err := fmt.Fprintln(w, strings.Join(parts, "/")); err != nil {
				return err
			}
		}
	}
	return nil
}

// printDocument prints one object as YAML or JSON, with its version if version tells one.
func printDocument(w io.Writer, format string, r *resource.Resource, version func(resource.Key) string) error {
	marshal := resource.MarshalYAML
	if format == "json" {
		marshal = resource.MarshalJSON
	}
	text, err := marshal(r)
	if err != nil {
		return err
	}
	if version != nil {
		text = check.WithVersion(text, version(r.Key()))
	}
	if format == "json" {
		if text, err = indented(text); err != nil {
			return err
		}
	}
	_, err = w.Write(text)
	return err
}

// printJSONList prints objects as a list that kubectl apply takes.
func printJSONList(w io.Writer, all []found, version func(resource.Key) string) error {
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", []json.RawMessage{}}
	for _, f := range all {
		for _, r := range f.objects {
			text, err := resource.MarshalJSON(r)
			if err != nil {
				return err
			}
			if version != nil {
				text = check.WithVersion(text, version(r.Key()))
			}
			list.Items = append(list.Items, text)
		}
	}
	return printJSON(w, list)
}

func indented(text []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
