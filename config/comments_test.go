package config_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"tributary/config"
)

// comments are the comments above the fields of structs, by "package.Type.Field".
var comments = sync.OnceValue(func() map[string]string {
	commentByName := make(map[string]string)
	for _, dir := range []string{".", "../sources/transform"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			panic(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				panic(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, id := range f.Names {
							commentByName[file.Name.Name+"."+spec.Name.Name+"."+id.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
						}
					}
				}
				return true
			})
		}
	}
	return commentByName
})

// fields returns the fields of a struct and of its embedded structs. The tag jsonschema of each is the comment above
// it.
func fields(typ reflect.Type) []reflect.StructField {
	var structFields []reflect.StructField
	for f := range typ.Fields() {
		if f.Anonymous && keyOf(f) == "" {
			structFields = append(structFields, fields(bare(f.Type))...)
			continue
		}
		comment := comments()[typ.String()+"."+f.Name]
		if typ == reflect.TypeFor[config.Source]() && f.Name == "Address" {
			for _, scheme := range config.Schemes() {
				comment += " " + scheme.Form
			}
		}
		f.Tag += reflect.StructTag(` jsonschema:` + strconv.Quote(comment))
		structFields = append(structFields, f)
	}
	return structFields
}

// annotate gives the properties of a struct's schema, and of the structs in it, their descriptions and defaults.
func annotate(s *jsonschema.Schema, typ reflect.Type) *jsonschema.Schema {
	for _, f := range fields(typ) {
		p := s.Properties[keyOf(f)]
		if p == nil {
			continue
		}
		p.Description = f.Tag.Get("jsonschema")
		p.Default = defaultOf(f)
		inner := bare(f.Type)
		if inner.Kind() == reflect.Slice {
			p, inner = p.Items, bare(inner.Elem())
		}
		if inner.Kind() == reflect.Struct && p.Properties != nil {
			annotate(p, inner)
		}
	}
	return s
}
