# cmake -DOUTPUT=files.cc "-DFILES=a;b" -P embed.cmake: the definition of WebFiles() (files.h) with what is in the files.
set(type_html "text/html; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(entries "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  get_filename_component(extension "${file}" LAST_EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${file}: no content type for .${extension}")
  endif()
  if(name STREQUAL "index.html")
    set(path "/")
  else()
    set(path "/playground/${name}")
  endif()
  file(READ "${file}" bytes HEX)
  file(SHA256 "${file}" hash)
  string(SUBSTRING "${hash}" 0 32 hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(APPEND arrays "constexpr char kFile${number}[] =\n    \"${bytes}\";\n")
  string(APPEND entries
         "    {\"${path}\", \"${type_${extension}}\", \"\\\"${hash}\\\"\", {kFile${number}, sizeof(kFile${number}) - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE "${OUTPUT}" "#include \"services/text/web/files.h\"

namespace tandem::text {
namespace {

${arrays}
constexpr WebFile kFiles[] = {
${entries}};

}  // namespace

std::span<const WebFile> WebFiles() { return kFiles; }

}  // namespace tandem::text
")
