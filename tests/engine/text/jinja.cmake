# The chat-template renderer alone: it needs no tokenizer.
tandem_test(engine_chat_template_test
            SOURCES chat_template_test.cc
                    jinja_golden_test.cc
                    jinja_limits_test.cc
                    jinja_malformed_test.cc
                    jinja_text_test.cc
                    jinja_unicode_test.cc
            DEPS engine_chat_template
            LABELS unit)
