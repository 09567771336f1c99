module holdfast.local/build/appwrapper-suite

go 1.26.0

require github.com/project-codeflare/appwrapper v1.2.1 // indirect
